"""Let a virtual environment see the packages of the Python that runs this: `python ci/see_packages.py VENV`.

A ROCm or CUDA image brings its own build of torch, which must stay.  `python -m venv --system-site-packages` shows only
the packages of the *base* Python: in images where torch lives in a virtual environment itself (rocm/pytorch,
/opt/venv) it shows none of them.  So the new environment gets a .pth file that names every package folder of this
Python, whatever it is: a venv, conda, the system's.  Its own packages come first.  Standard library only.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FILE = "ridgeline_base_packages.pth"
"""Read by the `site` module of the environment at every start (docs.python.org/3/library/site.html)."""

FOLDERS = ("site-packages", "dist-packages")
"""How package folders are called: by Python itself, and by Debian."""


def package_folders(path: list[str]) -> list[str]:
    """The package folders among the entries of a sys.path, in order."""
    return [entry for entry in dict.fromkeys(path) if Path(entry).name in FOLDERS and Path(entry).is_dir()]


def see(environment: Path, folders: list[str]) -> Path:
    """Write the .pth file; its path.  `addsitedir` follows the .pth files of the folders too (editable installs)."""
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    python = environment / "bin" / "python"
    own = subprocess.run([str(python), "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    file = Path(own) / FILE
    file.write_text("".join(f"import site; site.addsitedir({folder!r})\n" for folder in folders))
    return file


def main(arguments: list[str]) -> int:
    """Exit code 0, or 3 with a sentence."""
    if len(arguments) != 1 or not (Path(arguments[0]) / "bin" / "python").exists():
        print("usage: python ci/see_packages.py VENV, the folder of a virtual environment", file=sys.stderr)
        return 3
    see(Path(arguments[0]), package_folders(sys.path))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
