"""`make setup` and `make check` in stand-ins of AMD's images: they keep the torch that the image brings.

An image is a whole Python with a pip of its own, an old setuptools, and torch in one of three places.  Where
something is measured, its torch is the real one of this environment under another version, which names a ROCm;
elsewhere a package that knows this version only.  Nothing can be written into an image, and there is no network: what
Ridgeline needs beyond it lies in a folder of wheels.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import filelock
import pytest
import torch

from ci.trials.file import read
from tests.kit import commit, copied, repository
from tests.needed import absent

pytestmark = pytest.mark.nightly

PACKAGES = Path(sysconfig.get_path("purelib"))
BASE = Path(sys.base_prefix)
MINOR = f"python{sys.version_info.major}.{sys.version_info.minor}"
VERSION, HIP = f"{torch.__version__.split('+')[0]}+rocm7.1.1", "7.1.52802"
OURS = ("torch", "pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence", "__editable__")
OURS += ("ridgeline",)
"""What the image does not have, or has otherwise."""

SETUPTOOLS = ("59.8.0", "65.7.0", "80.9.0")
PIPS = ("22.3.1" if sys.version_info < (3, 12) else "23.2.1", "newest")
"""The first pips of Python 3.11 and 3.12, as their ensurepip had them."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Project and version -> its wheel; the newest pip and setuptools as well.  Downloaded once for all workers."""
    shared = tmp_path_factory.getbasetemp()
    shared = (shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared) / "wheels"
    shared.mkdir(exist_ok=True)
    asked = [*(("setuptools", one) for one in (*SETUPTOOLS, "newest")), *(("pip", one) for one in PIPS)]
    with filelock.FileLock(shared / "lock"):
        return {one: downloaded(*one, shared / "-".join(one)) for one in asked}


def downloaded(project, version, folder):
    """The wheel of a version in a folder of its own."""
    wanted = project if version == "newest" else f"{project}=={version}"
    argv = ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "-d", folder]
    if not folder.exists():
        done = subprocess.run([sys.executable, "-m", "pip", *argv, wanted], capture_output=True, text=True)
        if done.returncode:
            said = done.stderr.strip()[-200:]
            absent(f"{wanted} cannot be downloaded: connect this machine to a package index ({said})")
    (wheel,) = folder.glob("*.whl")
    return wheel


def link(source, target, without):
    """A folder of links to the entries of another."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        if not without(entry.name):
            (target / entry.name).symlink_to(entry)
    return target


class Image:
    """An image in a folder: a whole Python, packages wherever a kind of image has them, and variables."""

    def __init__(self, folder, setuptools, pip, measures):
        self.folder, self._setuptools, self.variables = folder, setuptools, dict[str, str]()
        self._measures = measures
        library = Path(sysconfig.get_path("stdlib", vars={"installed_base": str(BASE)}))
        prefix = link(BASE, folder / "prefix", lambda name: name in ("bin", "lib"))
        link(library.parent, prefix / "lib", lambda name: name == MINOR)
        self.library = prefix / "lib" / MINOR
        link(library, self.library, lambda name: name in ("site-packages", "dist-packages", "ensurepip"))
        (prefix / "bin").mkdir()
        shutil.copy(BASE / "bin" / MINOR, prefix / "bin/python3")
        self.python = prefix / "bin/python3"
        ensurepip = link(
            library / "ensurepip", self.library / "ensurepip", lambda name: name in ("__init__.py", "_bundled")
        )
        link(library / "ensurepip/_bundled", ensurepip / "_bundled", lambda name: name.startswith("pip-"))
        shutil.copy(pip, ensurepip / "_bundled")
        text = (library / "ensurepip/__init__.py").read_text()
        version = pip.name.split("-")[1]
        (ensurepip / "__init__.py").write_text(re.sub('_PIP_VERSION = ".*"', f'_PIP_VERSION = "{version}"', text))

    def fill(self, packages):
        """The packages of an image: those of this environment, but for an old setuptools and a torch for ROCm."""
        link(PACKAGES, packages, lambda name: name.startswith(OURS) and not name.startswith("torchgen"))
        with zipfile.ZipFile(self._setuptools) as wheel:
            wheel.extractall(packages)
        pinned = self.folder / "constraint.txt"  # as NVIDIA's images pin what they bring
        pinned.write_text(f"setuptools=={self._setuptools.name.split('-')[1]}\n")
        self.variables["PIP_CONSTRAINT"] = str(pinned)
        if not self._measures:
            (packages / "torch").mkdir()
            (packages / "torch/__init__.py").write_text("from torch.version import __version__ as __version__\n")
            (packages / "torch/version.py").write_text(f"__version__, hip, cuda = {VERSION!r}, {HIP!r}, None\n")
            return
        ours = link(Path(torch.__file__).parent, packages / "torch", lambda name: name in ("version.py", "__pycache__"))
        compiled = Path(torch.__file__).parent / "__pycache__"
        if compiled.is_dir():  # so that torch is not compiled for each image
            link(compiled, ours / "__pycache__", lambda name: name.startswith("version."))
        text = (Path(torch.__file__).parent / "version.py").read_text()
        (ours / "version.py").write_text(f"{text}\n__version__, hip = {VERSION!r}, {HIP!r}\n")


def venv(image):
    """rocm/pytorch: torch lives in a virtual environment, /opt/venv."""
    subprocess.run([image.python, "-m", "venv", "--without-pip", image.folder / "opt/venv"], check=True)
    image.python = image.folder / "opt/venv/bin/python"
    image.fill(image.folder / "opt/venv/lib" / MINOR / "site-packages")


def conda(image):
    """A conda environment: torch lives beside the standard library."""
    (image.folder / "prefix/conda-meta").mkdir()
    image.fill(image.library / "site-packages")


def system(image):
    """The system's Python, with torch in the packages of the user."""
    image.fill(image.folder / "user/lib" / MINOR / "site-packages")
    image.variables["PYTHONUSERBASE"] = str(image.folder / "user")


def made(tree, target, image, wheel):
    """What `make` of these words prints with the image's Python, which root cannot write to either, and no network."""
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST", "MAKE", "PIP"))
    }
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent)}
    subprocess.run(["chmod", "-R", "a-w", image.folder], check=True)
    obey = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"] if os.getuid() == 0 else []
    try:
        done = subprocess.run(
            [*obey, "make", *target, f"PYTHON={image.python}"],
            cwd=tree, env={**inherited, **offline, **image.variables}, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
    finally:
        subprocess.run(["chmod", "-R", "u+w", image.folder], check=True)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture
def tree(tmp_path):
    """This tree with one kernel and no records."""
    return copied(tmp_path / "tree")


SEEN = "import json, torch; print(json.dumps([torch.__version__, torch.version.hip]))"

KINDS = (venv, conda, system)
PAIRS = [(KINDS[(i + j) % 3], SETUPTOOLS[i], pip) for i in range(3) for j, pip in enumerate(PIPS)]
"""Each pip with each kind and with each setuptools: three makers of a `.pth`, two readers of what `make` asks for."""

CHECKED = list({kind: (kind, *rest) for kind, *rest in reversed(PAIRS)}.values())
"""One of each kind measures."""


@pytest.mark.parametrize(
    ("kind", "setuptools", "pip"),
    [
        pytest.param(
            *pair, id="-".join((pair[0].__name__, *pair[1:])), marks=pytest.mark.xdist_group(f"image {number % 3}")
        )
        for number, pair in enumerate(PAIRS)
    ],
)
def test_make_setup_takes_any_setuptools_and_pip_and_make_check_measures(kind, setuptools, pip, tree, tmp_path, wheels):
    checked = (kind, setuptools, pip) in CHECKED
    image = Image(tmp_path / "image", wheels["setuptools", setuptools], wheels["pip", pip], checked)
    kind(image)
    if checked:
        commit(repository(tree))
    made(tree, ["check"] if checked else ["setup", "USED=torch"], image, wheels["setuptools", "newest"])
    python = tree / ".venv/bin/python"
    asked = {"cwd": tmp_path, "capture_output": True, "text": True, "env": {**os.environ, **image.variables}}
    said = subprocess.run([python, "-m", "pip", "--version"], check=True, **asked).stdout
    assert said.split()[1] == wheels["pip", pip].name.split("-")[1]
    if not checked:
        assert json.loads(subprocess.run([python, "-c", SEEN], check=True, **asked).stdout) == [VERSION, HIP]
        return
    (file,) = tree.glob(".ridgeline/trials/*.jsonl")
    checkouts = [checkout for trial in read(file).trials for checkout in trial.checkouts.values()]
    versions = {checkout.environment.versions["torch"] for checkout in checkouts}
    assert versions == {VERSION}, versions
