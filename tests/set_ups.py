"""The set-up as a stranger has it: `python -m tests.set_ups [PYTHON...]`, without names each tested Python found here.

For each: a clean clone of HEAD in a temporary folder, pip without any configuration, `make check`, then `make test`;
one line says the exit codes, the seconds and the bytes.  Exit code 1 if one fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ci import set_up

ROOT = Path(__file__).parent.parent
TARGETS = ("check", "test")


def pythons_here() -> Iterator[str]:
    """The tested Pythons that can be started."""
    for major, minor in set_up.pythons():
        path = shutil.which(f"python{major}.{minor}")
        if path and subprocess.run([path, "-c", "import venv"], capture_output=True).returncode == 0:
            yield path
        else:
            print(f"python{major}.{minor} is not on this machine", flush=True)


def environment() -> dict[str, str]:
    """The environment of this process without what configures pip or Python."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "VIRTUAL_ENV"))
    }
    return {**clean, "PIP_CONFIG_FILE": os.devnull}


def set_up_in_clone(python: str) -> bool:
    """Carry out TARGETS with this Python in a clean clone and print a line about it; whether all passed."""
    with tempfile.TemporaryDirectory(prefix="ridgeline-set-up-") as folder:
        clone = Path(folder) / "ridgeline"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        outcomes, passed = list[str](), True
        for target in TARGETS:
            begin, log = time.monotonic(), Path(folder) / f"{target}.log"
            with log.open("wb") as output:
                argv = ["make", target, f"PYTHON={python}"]
                code = subprocess.run(argv, cwd=clone, env=environment(), stdout=output, stderr=output).returncode
            outcomes.append(f"make {target} ended with {code} after {time.monotonic() - begin:.0f} s")
            if code:
                passed = False
                print(*log.read_text(errors="replace").splitlines()[-40:], sep="\n", flush=True)
        usage = subprocess.run(["du", "-sm", str(clone / ".venv")], capture_output=True, text=True).stdout.split()
        print(f"{python}: {', '.join(outcomes)}; .venv has {usage[0] if usage else 0} MiB", flush=True)
        return passed


def main(pythons: Sequence[str]) -> int:
    """Exit code 0, 1 if a set-up failed, 3 if there is no Python to try."""
    chosen = pythons or list(pythons_here())
    if not chosen:
        print(
            "Error: none of the tested Pythons is here; name one: `make test-set-up PYTHONS=python3.13`",
            file=sys.stderr,
        )
        return 3
    passed = [set_up_in_clone(python) for python in chosen]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
