"""Trees between two sides: head with files or parts of base, and a repository that is left as it was."""

from __future__ import annotations

import subprocess

import pytest

from ci.git.repository import Repository
from ci.why import suspects
from ci.why.search import Suspect, SuspectKind
from ci.why.suspects import Sides, listed
from tests.ci.why import toy
from tests.kit import commit, git, repository


@pytest.fixture
def sides(tmp_path):
    """A committed base, and a head with uncommitted changes: edits, a new file, a file that is gone."""
    folder = toy.repository(tmp_path / "repository")
    (folder / "toys" / "doze" / "gone.py").write_text("X = 1\n")
    commit(folder, "base")
    clone = Repository(folder)
    base = clone.checkout("HEAD", "base")
    toy.changed(folder, toy.COPY)
    (folder / "toys" / "doze" / "gone.py").unlink()
    (folder / "toys" / "doze" / "new.py").write_text("X = 2\n")
    (folder / "toys" / "__init__.py").write_text("# a comment\n")
    return Sides(base, clone.working_tree(), tmp_path / "why")


def state(folder):
    commands = (["status", "--porcelain"], ["for-each-ref"], ["count-objects", "-v"], ["ls-files", "--stage"])
    return "".join(subprocess.check_output(["git", "-C", str(folder), *words], text=True) for words in commands)


def file(name):
    return Suspect(SuspectKind.FILE, name, path=name)


def test_a_file_is_put_back_and_nothing_else(sides):
    before = state(sides.head.path)
    tree = sides.between([file("toys/doze/layout.py")])
    assert (tree.path / "toys/doze/layout.py").read_text() == toy.FILES["toys/doze/layout.py"]
    assert "assert out.shape" in (tree.path / "toys/doze/work.py").read_text()
    assert tree.dirty, "its trials belong to no commit"
    assert not (tree.path / ".git").exists()
    assert state(sides.head.path) == before, "index, refs and objects are those that were there"


def test_a_new_file_is_taken_away_and_a_lost_one_comes_back(sides):
    tree = sides.between([file("toys/doze/gone.py"), file("toys/doze/new.py")])
    assert (tree.path / "toys/doze/gone.py").exists()
    assert not (tree.path / "toys/doze/new.py").exists()


def test_parts_of_a_file_are_put_back_alone(sides):
    parts = suspects.parts_of("toys/doze/layout.py", sides)
    assert [one.name.rpartition(" ")[2] for one in parts] == ["copied", "laid_out", "name"]
    tree = sides.between([parts[2]])
    text = (tree.path / "toys/doze/layout.py").read_text()
    assert '"rows"' in text
    assert "copied(x)" in text


def test_suspects_are_the_files_that_the_operator_imports(sides):
    git(sides.head.path, "status", "--short")
    found = {one.name: one.weight for one in suspects.of_files("doze", sides)}
    assert found == {f"toys/doze/{name}": 3.0 for name in ("gone.py", "layout.py", "new.py", "work.py")}


def test_a_tree_between_has_the_files_of_submodules_and_what_the_project_prepares(tmp_path):
    speed = repository(tmp_path / "speed", **{"nap.py": "SECONDS = 0.001\n"})
    settings = 'checkout = {prepare = "mkdir -p made/__pycache__; touch made/version.py made/__pycache__/a.pyc"}\n'
    root = repository(tmp_path / "mine", **{"ridgeline.toml": settings, ".gitignore": "made/\n", "a.py": ""})
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", speed, "speed")
    commit(root)
    checkout = Repository(root).checkout("HEAD", "head").path
    names = {".gitignore", ".gitmodules", "a.py", "ridgeline.toml", "speed/nap.py"}
    assert set(listed(checkout)) == {*names, "made/version.py"}
    (root / "made").mkdir()
    (root / "made" / "else.py").touch()
    assert set(listed(root)) == names, "a working tree has all kinds of ignored files"
