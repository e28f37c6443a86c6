"""A copy of this project with one of its operators: what tests measure in a repository of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEFT_OUT = ("tests", "results", "results_isa", "results_sustained")
OPERATOR = ("_shared", "symmetric_heap", "gemm")
AUTHOR = {f"GIT_{role}_{key}": "t@example.org" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}


def copied(folder: Path) -> Path:
    """The files as they lie here, committed or not, without tests, records and the other operators."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file() and _needed(Path(name)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def _needed(name: Path) -> bool:
    if name.parts[0] == "kernels" and len(name.parts) > 2:
        return name.parts[1] in OPERATOR
    return name.parts[0] not in LEFT_OUT


def git(folder: Path, *words: str) -> None:
    """Run git there, as an author that is nobody."""
    subprocess.run(["git", *words], cwd=folder, env={**os.environ, **AUTHOR}, check=True)
