"""requirements.lock: every dependency, direct and indirect, at one version and with its hashes, for both Pythons."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Iterator

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.github.actions import ROOT

LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DIRECT = [Requirement(one) for one in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["locked"])]


def locked() -> dict[str, Requirement]:
    """What is locked, by name."""
    lines = re.findall(r"^([A-Za-z0-9][^\\\n]*?) *\\$", LOCK, re.MULTILINE)
    return {canonicalize_name(one.name): one for one in map(Requirement, lines)}


def version(name: str) -> str:
    (one,) = locked()[name].specifier
    assert one.operator == "=="
    return one.version


@pytest.mark.parametrize("direct", DIRECT, ids=str)
def test_it_covers_the_dependencies_of_the_project(direct: Requirement) -> None:
    """A dependency that was added or whose range changed asks for `make lock`."""
    assert canonicalize_name(direct.name) in locked(), "run `make lock` and commit requirements.lock"
    assert direct.specifier.contains(version(canonicalize_name(direct.name))), "run `make lock`"


def needed(name: str, python: str) -> Iterator[str]:
    """What an installed package needs on Linux with that Python, if it is here at the locked version."""
    environment = {**default_environment(), "python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    for text in importlib.metadata.requires(name) or ():
        one = Requirement(text)
        if one.marker is None or one.marker.evaluate(environment):
            yield canonicalize_name(one.name)


@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_nothing_that_is_needed_is_missing(python: str) -> None:
    """pip refuses to install what has no hash; here it is seen before."""
    here = {canonicalize_name(one.metadata["Name"]): one.version for one in importlib.metadata.distributions()}
    there = [name for name in locked() if here.get(name) == version(name)]
    assert len(there) > len(DIRECT), "most of them are installed here"
    assert {(name, one) for name in there for one in needed(name, python) if one not in locked()} == set()


def test_versions_are_those_of_the_cpu_set_up() -> None:
    pairs = (line.split("==") for line in (ROOT / "constraints-cpu.txt").read_text().splitlines() if "==" in line)
    constrained = {canonicalize_name(name): pinned for name, pinned in pairs}
    both = locked().keys() & constrained.keys()
    assert len(both) > 20
    assert {name: version(name) for name in both} == {name: constrained[name] for name in both}


def test_every_package_has_hashes_and_nothing_says_where_it_comes_from() -> None:
    blocks = re.split(r"\n(?=[A-Za-z0-9])", LOCK.partition("\n#")[2])
    for block in blocks[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block
    assert "://" not in LOCK
    assert "--index-url" not in LOCK
    assert "--trusted-host" not in LOCK


def test_the_trusted_set_up_takes_nothing_else() -> None:
    light = (ROOT / "Makefile").read_text().partition("\nlight:")[2].partition("\n\n")[0]
    first, second = [line for line in light.splitlines() if "$(PIP)" in line]
    assert "--require-hashes --only-binary :all: -r requirements.lock" in first
    assert "--no-index --no-deps --no-build-isolation" in second
