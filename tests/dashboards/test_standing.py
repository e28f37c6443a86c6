"""A site that stands is not built again, unless anything that it shows has changed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ci.records import store
from dashboards import __main__ as program
from dashboards import standing
from tests.ci import made_trials as trials


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A repository with one record."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    line = trials.trial({"m16": {"head/triton": trials.ok()}}, trees={"head": trials.tree()})
    store.record([trials.write(tmp_path / "a.jsonl", line)], tmp_path / "results")
    return tmp_path / "results"


@pytest.fixture
def built(results: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Run the program; was the site built?"""
    found: list[bool] = []
    build = program._build
    monkeypatch.setattr(program, "_build", lambda wanted: found.append(True) or build(wanted))

    def run(*more: str) -> bool:
        found.clear()
        assert program.main(["--results", str(results), "--out", str(results.parent / "site"), *more]) == 0
        return bool(found)

    return run


def test_a_site_is_built_once(built: Callable[..., bool], capsys: pytest.CaptureFixture[str]) -> None:
    assert built()
    assert not built()
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


@pytest.mark.parametrize(
    "change", ["record", "decision", "commit", "address", "page", "missing", "note", "machine code"]
)
def test_what_a_site_shows_makes_it_new(built: Callable[..., bool], results: Path, change: str) -> None:
    assert built()
    around, address = results.parent, []
    if change == "record":
        line = trials.trial({"m64": {"head/triton": trials.ok()}}, trees={"head": trials.tree()}, number=1)
        store.record([trials.write(around / "b.jsonl", line)], results)
    elif change == "decision":
        (around / "ci").mkdir()
        (around / "ci/events.toml").write_text("")
    elif change == "machine code":
        (around / "results_isa").mkdir()
        (around / "results_isa/x.json").write_text("{}")
    elif change == "commit":
        author = ["-c", "user.name=A. Author", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", around, *author, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    elif change == "address":
        address = ["--repo-url", "https://example.org/a/b"]
    elif change == "page":
        (around / "site/index.html").write_text("changed by hand")
    elif change == "missing":
        (around / "site/data/site.js").unlink()
    else:
        for note in (results / ".cache").glob("site-*.note"):
            note.write_text("[]")
    assert built(*address)
    assert not built(*address)


def test_nothing_heavy_is_imported_to_find_out() -> None:
    heavy = "'pandas', 'numpy', 'scipy', 'jinja2'"
    code = f"import sys, dashboards.__main__; print([name for name in ({heavy}) if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=standing.HERE)
    assert shown.stdout.strip() == "[]"


def test_without_git_and_with_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("no folder")
    made_of = standing.inputs(tmp_path / "results")
    standing.remember(tmp_path / "site", tmp_path / "results", made_of)
    assert not standing.stands(tmp_path / "site", tmp_path / "results", made_of)


def test_a_worktree_has_its_refs_elsewhere(results: Path, tmp_path: Path) -> None:
    author = ["-c", "user.name=A. Author", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", tmp_path, *author, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run(["git", "-C", tmp_path, "worktree", "add", "-q", tmp_path / "tree"], check=True)
    before = standing.inputs(tmp_path / "tree" / "results")
    subprocess.run(["git", "-C", tmp_path / "tree", *author, "commit", "-q", "--allow-empty", "-m", "y"], check=True)
    assert standing.inputs(tmp_path / "tree" / "results") != before
