"""`make check` in stand-ins of AMD's images: it measures with the torch that the image brings, wherever that lives.

A stand-in has the real torch of this environment under another version, which names a ROCm: Ridgeline must keep it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.one_operator import copied, git

PACKAGES = Path(sysconfig.get_path("purelib"))
BASE = Path(sys.base_prefix)
MINOR = f"python{sys.version_info.major}.{sys.version_info.minor}"
VERSION, HIP = f"{torch.__version__.split('+')[0]}+rocm7.1.1", "7.1.52802"
OURS = ("torch", "pip", "__editable__", "ridgeline")
"""What the image does not have, or has otherwise."""


def link(source: Path, target: Path, without: Callable[[str], bool]) -> Path:
    """A folder of links to the entries of another."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        if not without(entry.name):
            (target / entry.name).symlink_to(entry)
    return target


def fill(folder: Path) -> None:
    """The packages of an image: those of this environment, and a torch that says it is built for ROCm."""
    link(PACKAGES, folder, lambda name: name == "torch" or name.startswith(OURS[1:]) or name.endswith(".pth"))
    ours = link(Path(torch.__file__).parent, folder / "torch", lambda name: name in ("version.py", "__pycache__"))
    compiled = Path(torch.__file__).parent / "__pycache__"
    if compiled.is_dir():  # so that torch is not compiled for each image
        link(compiled, ours / "__pycache__", lambda name: name.startswith("version."))
    text = (Path(torch.__file__).parent / "version.py").read_text()
    (ours / "version.py").write_text(f"{text}\n__version__, hip = {VERSION!r}, {HIP!r}\n")


def venv_image(folder: Path) -> tuple[Path, dict[str, str]]:
    """rocm/pytorch: torch lives in a virtual environment, /opt/venv."""
    subprocess.run([BASE / "bin" / MINOR, "-m", "venv", "--without-pip", folder / "opt/venv"], check=True)
    fill(folder / "opt/venv/lib" / MINOR / "site-packages")
    return folder / "opt/venv/bin/python", {}


def conda_image(folder: Path) -> tuple[Path, dict[str, str]]:
    """A conda environment: a whole prefix with an interpreter and a standard library of its own."""
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": str(BASE)}))
    prefix = link(BASE, folder / "conda", lambda name: name in ("bin", "lib"))
    link(library.parent, prefix / "lib", lambda name: name == MINOR)
    link(library, prefix / "lib" / MINOR, lambda name: name in ("site-packages", "dist-packages"))
    (prefix / "conda-meta").mkdir()
    (prefix / "bin").mkdir()
    shutil.copy(BASE / "bin" / MINOR, prefix / "bin/python3")
    fill(prefix / "lib" / MINOR / "site-packages")
    return prefix / "bin/python3", {}


def system_image(folder: Path) -> tuple[Path, dict[str, str]]:
    """The system's Python, with torch in the packages of the user."""
    fill(folder / "user/lib" / MINOR / "site-packages")
    return BASE / "bin" / MINOR, {"PYTHONUSERBASE": str(folder / "user")}


def repository(folder: Path) -> Path:
    """This tree with one kernel and no records, as a repository whose last two commits it is."""
    copied(folder)
    for command in ("init -q -b main", "add -A", "commit -q -m base", "commit -q --allow-empty -m head"):
        git(folder, *command.split())
    return folder


@pytest.mark.parametrize("image", [venv_image, conda_image, system_image])
def test_make_check_measures_with_the_torch_of_the_image(
    image: Callable[[Path], tuple[Path, dict[str, str]]], tmp_path: Path
) -> None:
    python, environment = image(tmp_path / "image")
    tree = repository(tmp_path / "tree")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST", "MAKE"))}
    done = subprocess.run(
        ["make", "check", f"PYTHON={python}"],
        cwd=tree, env={**inherited, **environment}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    (notes,) = tree.glob("results/*/*.notes.jsonl")
    lines = [json.loads(line) for line in notes.read_text().splitlines()]
    versions = {tree["environment"]["torch"] for line in lines for tree in line.get("trees", {}).values()}
    assert versions == {VERSION}, versions
