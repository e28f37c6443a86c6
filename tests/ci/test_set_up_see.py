"""The environment of `make setup` sees the torch that a machine brings, wherever it lives."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from pathlib import Path

from ci import set_up

SCRIPT = Path(set_up.__file__)
TORCH = "class version:\n    hip, cuda = '7.0.1', None\n"
ASK = "import json, sys, torch, tool; print(json.dumps([torch.version.hip, torch.__file__, tool.FROM, sys.prefix]))"


def python(executable, *arguments, **environment):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run([str(executable), *arguments], capture_output=True, text=True, env={**clean, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def packages_of(executable):
    return Path(python(executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


def with_torch(folder):
    """A folder of packages with a stand-in for torch and for a tool that Ridgeline installs too."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(TORCH)
    (folder / "tool.py").write_text("FROM = 'the image'\n")
    return folder


def environment_seen(image, folder, **environment):
    """Make an environment as `make setup` does, with the image's Python; what its own Python imports."""
    python(image, "-m", "venv", "--without-pip", str(folder), **environment)
    python(image, str(SCRIPT), "see", str(folder), **environment)
    return json.loads(python(folder / "bin" / "python", "-c", ASK, **environment))


def image_in(folder):
    """The Python of an image whose torch is in a virtual environment, and the folder of its packages."""
    python(sys.executable, "-m", "venv", "--without-pip", str(folder))
    return folder / "bin" / "python", packages_of(folder / "bin" / "python")


def test_torch_in_a_virtual_environment_and_in_one_of_that(tmp_path):
    image, packages = image_in(tmp_path / "opt" / "venv")
    told = ["7.0.1", str(with_torch(packages) / "torch" / "__init__.py"), "the image"]
    for seen_by, new in ((image, tmp_path / "inner"), (tmp_path / "inner/bin/python", tmp_path / "new")):
        assert environment_seen(seen_by, new) == [*told, str(new)]


def test_torch_of_the_user_or_of_a_whole_prefix(tmp_path):
    """Conda and the system's Python are no environments: their folders are on sys.path; so is that of the user."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    user = {"PYTHONUSERBASE": str(tmp_path / "user")}
    where = python(base, "-c", "import site; print(site.getusersitepackages())", **user).strip()
    with_torch(Path(where))
    assert environment_seen(base, tmp_path / "new", **user)[0] == "7.0.1"


def test_own_packages_come_before_those_of_the_image(tmp_path):
    (image, packages), new = image_in(tmp_path / "image"), tmp_path / "new"
    with_torch(packages)
    environment_seen(image, new)
    (packages_of(new / "bin" / "python") / "tool.py").write_text("FROM = 'Ridgeline'\n")
    assert json.loads(python(new / "bin" / "python", "-c", ASK))[2] == "Ridgeline"


def test_only_folders_of_packages_are_taken(tmp_path):
    packages, other = tmp_path / "dist-packages", tmp_path / "lib"
    packages.mkdir()
    other.mkdir()
    path = ["", str(other), str(packages), str(packages), str(tmp_path / "none" / "site-packages")]
    assert set_up.package_folders(path) == [str(packages)]
    assert set_up.package_folders(site.getsitepackages())


def test_what_is_no_environment_is_refused(tmp_path, capsys):
    assert set_up.main(["see", str(tmp_path)]) == 3
    assert "the folder of a virtual environment" in capsys.readouterr().err
