"""Golden files: `golden(name, text)` compares with tests/golden/NAME; `pytest --update-golden` writes them anew."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.standins.slurm import slurm_cluster

__all__ = ["slurm_cluster"]  # one cluster for all tests of a process, wherever they are

if any(path for name in ("kfd", "nvidia[0-9]*") for path in Path("/dev").glob(name)):
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # the tests time CPU backends; a hidden GPU is no fault
    os.environ.setdefault("HIP_VISIBLE_DEVICES", "")

# Several processes share the cores.  A thread that finds none free spins while it waits for the others, which costs up
# to six times the seconds of the work itself (libgomp); set before anything imports torch or numpy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew; then read the diff")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with its golden file; on a difference the message is the diff and the command to accept it."""
    update = request.config.getoption("--update-golden")

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.is_file():
            pytest.fail(f"{path} does not exist; `make golden` writes it")
        wanted = path.read_text(encoding="utf-8")
        if text != wanted:
            diff = difflib.unified_diff(wanted.splitlines(), text.splitlines(), "golden", "now", lineterm="")
            pytest.fail(f"{name} differs; if the change is meant, `make golden` accepts it:\n" + "\n".join(diff))

    return compare
