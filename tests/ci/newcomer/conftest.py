"""Ridgeline as a wheel brings it: built from this tree once, installed into an environment of its own."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.kit import AUTHOR, ROOT, git

LEGAL = ("LICENSE", "CHANGELOG.md", ".github/SECURITY.md")
ROOMS = ("kernels", "benchmarks", "ci", "dashboards")
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


@dataclasses.dataclass(frozen=True)
class Installed:
    """An environment: its folder, and what was installed."""

    folder: Path
    wheel: Path

    @property
    def packages(self):
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def run(self, cwd, *words, **variables):
        """A command of this environment; nothing of the tree under test is on its path."""
        kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        compiles = {"PYTHONDONTWRITEBYTECODE": ""}  # the first command compiles what all others read
        env = {**kept, **AUTHOR, **compiles, "PATH": f"{self.folder}/bin:{kept['PATH']}", **variables}
        return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=1800)


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The wheel, installed beside the packages of this Python."""
    root = tmp_path_factory.mktemp("wheel")
    wanted = (*ROOMS, *LEGAL, "setup.py", "pyproject.toml", "README.md")
    for name in git(ROOT, "ls-files", "-co", "--exclude-standard", *wanted).split():
        if (ROOT / name).is_file():
            (root / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "source" / name).write_bytes((ROOT / name).read_bytes())
    done = subprocess.run([sys.executable, "-c", BUILD, ".."], cwd=root / "source", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = root.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root / "venv")], check=True)
    found = Installed(root / "venv", wheel)
    beside = [entry for entry in (sysconfig.get_path("purelib"), *sys.path) if Path(entry).name == "site-packages"]
    (found.packages / "dependencies.pth").write_text("\n".join(dict.fromkeys(beside)))
    into = ["--python", str(found.folder / "bin/python"), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([sys.executable, "-m", "pip", *into, "--no-compile", str(wheel)], check=True)
    asv = found.folder / "bin" / "asv"
    asv.write_text(f'#!/bin/sh\nexec {found.folder}/bin/python -m asv "$@"\n')
    asv.chmod(0o755)
    return found
