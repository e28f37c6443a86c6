"""Records whose samples are elsewhere: the same numbers, the same trials, and nothing lost on the way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from asv import results as asv_results
from click.testing import Result

from ci.git.command import GitError
from ci.git.push import Branch
from ci.history import readings
from ci.judging import policy, recorded
from ci.records import samples, store
from ci.trials.file import RecordError, read
from tests.ci.made_trials import BASE, ENV, HEAD, MACHINE, TIMES, ok, tree, trial, write
from tests.kit import git, ridgeline

ROOT = Path(__file__).parents[3]
KEY = ["machine", "commit", "env", "kernel", "backend", "case"]
PLACES = {"folder": "samples", "branch": "branch:samples", "store": "file://{}/samples"}


def configure(project: Path, place: str) -> None:
    (project / "pyproject.toml").write_text(f"[tool.ridgeline]\nsamples = {json.dumps(place)}\n")


@pytest.fixture(params=PLACES)
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A repository whose samples have a place of this kind."""
    root = tmp_path / "project"
    git(tmp_path, "init", "-q", "-b", "main", "project")
    configure(root, PLACES[request.param].format(root))
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    return root


def record(project: Path, *lines: dict[str, Any]) -> store.Recorded:
    path = write(project / f"t{len(list(project.iterdir()))}.jsonl", *lines)
    return store.record([path], project / "results")


def notes(project: Path, commit: str = HEAD) -> Path:
    return project / "results" / MACHINE["name"] / f"{commit[:8]}-{ENV}.notes.jsonl"


def content(folder: Path) -> dict[str, bytes]:
    files = (f for f in sorted(folder.rglob("*")) if f.is_file() and ".cache" not in f.parts)
    return {str(f.relative_to(folder)): f.read_bytes() for f in files if not f.name.startswith(".")}


def sortable(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype(dict.fromkeys(KEY, str)).sort_values(KEY, ignore_index=True)


def same(one: Path, other: Path) -> None:
    frames = [sortable(store.load(results)) for results in (one, other)]
    assert [frame.attrs["problems"] for frame in frames] == [[], []]
    pd.testing.assert_frame_equal(*frames, check_exact=True, check_categorical=False)


# ---- the numbers ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All recorded data of this repository, its samples moved to a folder; `before` is a copy of what it was."""
    root = tmp_path_factory.mktemp("moved")
    shutil.copytree(ROOT / "results", root / "before", ignore=shutil.ignore_patterns(".*"))
    shutil.copytree(root / "before", root / "results")
    configure(root, "samples")
    assert ridgeline("record", "--compact", "--results", root / "results").exit_code == 0
    return root


@pytest.mark.slow
def test_pages_have_the_same_numbers(moved: Path) -> None:
    same(moved / "before", moved / "results")


@pytest.mark.slow
def test_every_trial_comes_back(moved: Path) -> None:
    count = 0
    for path in sorted((moved / "before").glob("*/*.notes.jsonl")):
        away, full = read(moved / "results" / path.relative_to(moved / "before")).trials, read(path).trials
        assert all(one.samples for one in away)
        back = {one.id: json.loads(one.text) for one in samples.whole_in(away, moved / "results")}
        assert back == {one.id: json.loads(one.text) for one in full}
        assert readings.noise_of(away) == readings.noise_of(full)
        count += len(back)
    assert count > 100


@pytest.mark.slow
def test_an_export_of_samples_is_the_same_from_both(moved: Path) -> None:
    chosen = "--machine", "h200x4-b112377d", "--kernel", "all_gather"
    for results in ("before", "results"):
        done = ridgeline("export", "--samples", "--results", moved / results, "--out", moved / f"of_{results}", *chosen)
        assert done.exit_code == 0, done.output
    assert content(moved / "of_before") == content(moved / "of_results")
    query = "SELECT count(*) FROM read_parquet('{}/{}/*/*.parquet')"
    part = f"machine={chosen[1]}/kernel={chosen[3]}"
    exported, in_place = (query.format(moved / place, part) for place in ("of_results", "samples"))
    assert duckdb.sql(exported).fetchall() == duckdb.sql(in_place).fetchall()
    ((count,),) = duckdb.sql(exported).fetchall()
    assert f"{count:,} samples in" in done.output


def test_moving_says_before_what_it_does(tmp_path: Path) -> None:
    configure(tmp_path, "samples")
    results = tmp_path / "results"
    machine = "h200x4-b112377d"
    (results / machine).mkdir(parents=True)
    for path in (ROOT / "results" / machine).glob("e213290d*"):
        shutil.copy(path, results / machine)
    before = content(results)
    dry = json.loads(ridgeline("record", "--compact", "--dry-run", "--json", "--results", results).output)
    assert content(results) == before
    assert not (tmp_path / "samples").exists()
    done = json.loads(ridgeline("record", "--compact", "--json", "--results", results).output)
    assert (dry["before"], dry["after"]) == (done["before"], done["after"])
    assert dry["samples_bytes"] == sum(len(one) for one in content(tmp_path / "samples").values())
    after = content(results), content(tmp_path / "samples")
    assert ridgeline("record", "--compact", "--results", results).exit_code == 0
    assert (content(results), content(tmp_path / "samples")) == after, "once more is no change"


# ---- recording -----------------------------------------------------------------------------------------------------


def test_what_is_recorded_compact_reads_as_what_is_not(project: Path, tmp_path: Path) -> None:
    lines = [trial(number=n, kernel=k) for n in range(2) for k in ("gemm", "softmax")]
    for line in lines:
        assert record(project, line).added == 1
        assert record(project, line).known == 1
    plain = tmp_path / "plain"
    store.record([write(tmp_path / "all.jsonl", *lines)], plain)
    same(plain, project / "results")
    place = store.places(project / "results", MACHINE["name"], HEAD)[0]
    assert [json.loads(one.text) for one in store.trials(project / "results", place)] == sorted(
        lines, key=lambda line: (line["started_at"], line["session"], line["trial"], line["id"])
    )
    assert str(TIMES)[1:20] not in notes(project).read_text()
    assert git(project, "status", "--porcelain", "--", "pyproject.toml") == ""
    of_asv = [folder / MACHINE["name"] / f"{HEAD[:8]}-{ENV}.json" for folder in (plain, project / "results")]
    rows = [{name: row[:11] for name, row in json.loads(file.read_text())["results"].items()} for file in of_asv]
    assert rows[0] == rows[1], "asv's columns but for the samples"
    assert asv_results.Results.load(str(of_asv[1]), machine_name=MACHINE["name"]).commit_hash == HEAD


def test_the_gate_fetches_the_rounds(project: Path, tmp_path: Path) -> None:
    slow = ok([1.1 * time for time in TIMES])
    arms = {"base/triton": ok(), "head/triton": slow, "base/blas": ok(), "head/blas": ok()}
    lines = [trial({"m16": arms}, number=n, trees={"base": tree(BASE), "head": tree()}) for n in range(8)]
    record(project, *lines)
    store.record([write(tmp_path / "all.jsonl", *lines)], tmp_path / "plain")
    both = project / "results", tmp_path / "plain"
    judged = [recorded.gate(results, BASE, HEAD, policy.load())[0] for results in both]
    assert judged[0].judgement == judged[1].judgement
    assert judged[0].judgement.verdict.name == "SLOWER"
    replayed = [ridgeline("ab", "--json", "--replay", notes(root)).output for root in (project,)]
    assert replayed == [ridgeline("ab", "--json", "--replay", tmp_path / "all.jsonl").output]


def test_an_ab_trial_is_in_the_place_once(project: Path) -> None:
    both = trial({"m16": {"base/triton": ok(), "head/triton": ok()}}, trees={"base": tree(BASE), "head": tree()})
    record(project, both)
    paths = {one.samples.path for commit in (BASE, HEAD) for one in read(notes(project, commit)).trials if one.samples}
    assert len(paths) == 1


# ---- what goes wrong -----------------------------------------------------------------------------------------------


@pytest.fixture
def in_folder(tmp_path: Path) -> Path:
    configure(tmp_path, "samples")
    record(tmp_path, trial(), trial(number=1))
    return tmp_path


def test_a_lost_line_of_times_is_said_and_made_anew(in_folder: Path) -> None:
    lines, good = notes(in_folder).read_text().splitlines(keepends=True), store.load(in_folder / "results")
    notes(in_folder).write_text("".join(line for line in lines if "ridgeline-pooled" not in line))
    frame = store.load(in_folder / "results")
    assert frame["seconds"].isna().all(), "nobody guesses them"
    assert "times of gemm is missing" in frame.attrs["problems"][0]
    assert record(in_folder, trial()).known == 1
    pd.testing.assert_frame_equal(store.load(in_folder / "results"), good)
    assert notes(in_folder).read_text() == "".join(lines)


def test_a_lost_trial_is_said_and_the_times_stay(in_folder: Path) -> None:
    lines, good = notes(in_folder).read_text().splitlines(keepends=True), store.load(in_folder / "results")
    notes(in_folder).write_text("".join([lines[0], lines[1][:99] + "\n", lines[2]]))
    frame = store.load(in_folder / "results")
    assert list(frame["seconds"]) == list(good["seconds"])
    assert ["torn" in frame.attrs["problems"][0], "older than its trials" in frame.attrs["problems"][1]] == [True, True]
    assert record(in_folder, trial(number=1)).added == 1
    assert notes(in_folder).read_text() == "".join(lines)


@pytest.mark.parametrize("spoil", ["gone", "torn", "others"])
def test_samples_that_are_not_there_are_named(in_folder: Path, spoil: str) -> None:
    found = sorted((in_folder / "samples").rglob("*.parquet"))
    if spoil == "gone":
        found[0].unlink()
    else:
        found[0].write_bytes(found[0].read_bytes()[:-99] if spoil == "torn" else found[1].read_bytes())
    before = content(in_folder / "results")
    with pytest.raises(RecordError, match=found[0].name):
        record(in_folder, trial(number=2))
    assert content(in_folder / "results") == before, "a record that cannot be pooled anew stays as it was"
    assert store.load(in_folder / "results").attrs["problems"] == [], "pages need no samples"
    place = store.places(in_folder / "results", MACHINE["name"], HEAD)[0]
    with pytest.raises(RecordError, match="copy|can it be reached"):
        store.trials(in_folder / "results", place)
    (in_folder / "samples").rename(in_folder / "elsewhere")
    with pytest.raises(RecordError, match="can it be reached"):
        store.trials(in_folder / "results", place)
    (in_folder / "pyproject.toml").write_text("")
    with pytest.raises(RecordError, match="name it in pyproject.toml"):
        store.trials(in_folder / "results", place)


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "machine=a/kernel=../month=2026-11/x", "s3://x"])
def test_only_parts_are_opened(in_folder: Path, path: str) -> None:
    place = samples.configured(in_folder / "results")
    assert place is not None
    with pytest.raises(RecordError, match="no path of samples"):
        place.get(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (3, "samples is 3; allowed is branch:NAME"),
        ("", "allowed"),
        ("branch:-x", "name of a branch"),
        ("branch:x", "not inside a git repository"),
        ("nothing://x/y", "samples cannot be"),
    ],
)
def test_a_place_that_cannot_be_is_named(tmp_path: Path, text: object, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.ridgeline]\nsamples = {json.dumps(text)}\n")
    with pytest.raises(RecordError, match=said):
        record(tmp_path, trial())
    assert not list((tmp_path / "results").rglob("*.json*"))


def test_a_place_that_cannot_be_written_loses_nothing(tmp_path: Path) -> None:
    configure(tmp_path, "samples")
    (tmp_path / "samples").write_text("a file")
    with pytest.raises(RecordError, match="nothing was recorded"):
        record(tmp_path, trial())
    assert not list((tmp_path / "results").rglob("*.json*"))


def test_moving_goes_on_where_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results"
    lines = [trial(trees={"head": tree(digit * 40)}) for digit in "0123"]
    store.record([write(tmp_path / "t.jsonl", *lines)], results)
    whole = sortable(store.load(results))
    configure(tmp_path, "samples")
    real, calls = store._replace, []

    def power_cut(path: Path, text: str) -> None:
        calls.append(path)
        if len(calls) == 6:  # between notes and asv's file of the second record
            raise KeyboardInterrupt
        real(path, text)

    monkeypatch.setattr(store, "_replace", power_cut)
    assert ridgeline("record", "--compact", "--results", results).exit_code == 130
    monkeypatch.undo()
    pd.testing.assert_frame_equal(sortable(store.load(results)), whole, check_exact=True)
    assert ridgeline("record", "--compact", "--results", results).exit_code == 0
    pd.testing.assert_frame_equal(sortable(store.load(results)), whole, check_exact=True)
    assert all(one.samples for path in results.rglob("*.notes.jsonl") for one in read(path).trials)


def test_compact_without_a_place_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    done = ridgeline("record", "--compact", "--results", tmp_path / "results")
    assert done.exit_code == 3
    assert "[tool.ridgeline] samples" in done.output
    assert ridgeline("record").exit_code == 3


# ---- the branch ----------------------------------------------------------------------------------------------------


@pytest.fixture
def clones(tmp_path: Path) -> tuple[Path, Path]:
    """Two clones of a project whose samples are in a branch."""
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "shared")
    git(tmp_path, "clone", "-q", "shared", "one")
    configure(tmp_path / "one", "branch:samples")
    git(tmp_path / "one", "checkout", "-q", "-B", "main")
    git(tmp_path / "one", "add", ".")
    git(tmp_path / "one", "commit", "-q", "-m", "start")
    git(tmp_path / "one", "push", "-q", "origin", "main")
    git(tmp_path, "clone", "-q", "--branch=main", "shared", "two")
    return tmp_path / "one", tmp_path / "two"


def pushed(project: Path, line: dict[str, Any]) -> Result:
    path = write(project / "trials.jsonl", line)
    return ridgeline("record", path, "--results", project / "results", "--push", "main")


@pytest.mark.slow
def test_two_clones_push_their_samples(clones: tuple[Path, Path]) -> None:
    one, two = clones
    for clone, digit in ((one, "0"), (two, "1"), (one, "2")):
        done = pushed(clone, trial(trees={"head": tree(digit * 40)}))
        assert done.exit_code == 0, done.output
        assert "to samples" in done.output
    git(two, "pull", "-q", "--rebase", "origin", "main")
    found = store.places(two / "results", MACHINE["name"], "")
    assert len(found) == 3
    assert all(len(store.trials(two / "results", place)) == 1 for place in found)
    assert git(two, "status", "--porcelain") == "?? trials.jsonl"
    assert len(git(one, "ls-tree", "-r", "--name-only", "origin/samples").splitlines()) == 3


def test_a_new_clone_reads_and_adds(clones: tuple[Path, Path], tmp_path: Path) -> None:
    one, _ = clones
    assert pushed(one, trial()).exit_code == 0
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{tmp_path}/shared", "three")
    three = tmp_path / "three"
    place = store.places(three / "results", MACHINE["name"], HEAD)[0]
    assert len(store.trials(three / "results", place)) == 1
    done = pushed(three, trial(number=1))
    assert done.exit_code == 0, done.output
    assert len(store.trials(three / "results", place)) == 2


def test_files_of_a_branch_are_binary_and_added_once(clones: tuple[Path, Path]) -> None:
    branch = Branch.of(clones[0], "data")
    odd = bytes(np.arange(256, dtype=np.uint8)) + b"\r\n"
    first = branch.add({"a/b": odd}, "one")
    assert branch.add({"a/b": odd}, "one more") == first
    assert branch.add({"c": b""}, "two") != first
    assert [branch.read(name) for name in ("a/b", "c")] == [odd, b""]
    with pytest.raises(GitError, match="no commit of the branch data has it"):
        branch.read("d")
    assert git(clones[0], "status", "--porcelain") == ""
    assert git(clones[0], "rev-parse", "--abbrev-ref", "HEAD") == "main"
