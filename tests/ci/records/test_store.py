"""Recording trials and reading them back, above all when something is wrong."""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from asv import results as asv_results
from scipy import special

from benchmarks import trial_file
from benchmarks.trial_file import Status
from ci.options import USAGE
from ci.records import pooling
from ci.records import store as records
from ci.records.derived import sustained_vs_spaced
from ci.records.ledger import base_of
from ci.records.rows import FEWEST_SAMPLES
from tests.ci.made_trials import BASE, ENV, HEAD, MACHINE, TIMES, declaration, failed, ok, tree, trial, write
from tests.kit import HANGS_S, commits_of_one_second, git, repository, ridgeline

NAME = MACHINE["name"]


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def record(tmp_path, results):
    """Record trials through a new file."""

    def do(*lines, **options):
        return records.record(
            [write(tmp_path / f"trials{len(list(tmp_path.iterdir()))}.jsonl", *lines)], results, **options
        )

    return do


def samples(results, commit, case="m16"):
    """Seconds of gemm/triton in a recorded case, one array per trial."""
    for place in records.places(results, NAME, commit, ENV):
        found = records.pool_at(results, place)
        if found and ("gemm", "triton", case) in found.cells:
            return list(found.cells["gemm", "triton", case].trials)
    return []


def asv_file(results, commit=HEAD, env=ENV):
    return results / NAME / f"{commit[:8]}-{env}.json"


def notes_file(results, commit=HEAD):
    """The only notes of a commit."""
    (path,) = (results / NAME).glob(f"{commit[:8]}-{ENV}.*.notes.jsonl.gz")
    return path


def content(folder):
    return {
        str(f.relative_to(folder)): f.read_bytes()
        for f in sorted(folder.rglob("*"))
        if f.is_file() and not f.name.startswith(".") and ".cache" not in f.parts
    }


def row(results, name="gemm.track_time", commit=HEAD):
    data = json.loads(asv_file(results, commit).read_text())
    return dict(zip(data["result_columns"], data["results"][name], strict=False))


def one(results, **where):
    frame = records.load(results)
    for column, value in where.items():
        frame = frame[frame[column] == value]
    assert len(frame) == 1
    return frame.iloc[0]


# ---- the asv file -------------------------------------------------------------------------------------------------


def test_asv_itself_reads_the_record(record, results):
    record(trial())
    loaded = asv_results.Results.load(str(asv_file(results)), machine_name=NAME)
    benchmarks = json.loads((results / "benchmarks.json").read_text())
    assert loaded.commit_hash == HEAD
    assert loaded.env_name == ENV
    assert loaded.get_result_keys(benchmarks) == {
        "gemm.track_time",
        "gemm.track_flops",
        "gemm.track_hbm_bytes",
        "track_broken_modules",
    }
    time = benchmarks["gemm.track_time"]
    assert time["params"] == [["'triton'", "'blas'"], ["'m16'", "'m64'"]]
    assert time["unit"] == "seconds"
    triton16, triton64, blas16, blas64 = loaded.get_result_value("gemm.track_time", time["params"])
    assert triton16 == pytest.approx(np.median(TIMES))
    assert blas16 == pytest.approx(np.median(TIMES) / 2)
    assert math.isnan(triton64), "what was not measured is n/a, not a failure"
    assert math.isnan(blas64)
    assert loaded.get_result_samples("gemm.track_time", time["params"]) == [None] * 4, (
        "samples stand in the notes alone"
    )
    assert loaded.get_result_value("gemm.track_flops", benchmarks["gemm.track_flops"]["params"]) == [10**9, 10**9]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("wrong", "null"),
        ("error", "null"),
        ("hang", "null"),
        ("crash", "null"),
        ("unsupported", "nan"),
        ("skipped", "nan"),
    ],
)
def test_a_failure_is_null_and_a_skip_is_nan(record, results, status, kind):
    record(trial({"m16": {"head/triton": failed(status, "the tile is off"), "head/blas": ok()}}))
    value = row(results)["result"][0]
    assert value is None if kind == "null" else math.isnan(value)
    found = one(results, backend="triton")
    assert (found["status"], found["why"]) == (status, "the tile is off")
    assert math.isnan(found["seconds"])
    assert found["samples"] == 0


def test_all_failed_is_a_null_column(record, results):
    arms = {"head/triton": failed("crash"), "head/blas": failed("hang")}
    record(trial({"m16": arms, "m64": arms}))
    assert row(results)["result"] is None


def test_asv_compares_intervals(record, results):
    """With 6 against 6 samples `asv compare` cannot call even a factor of 3 different; with intervals it can."""
    from asv._stats import is_different

    record(trial({"m16": {"head/triton": ok(TIMES[:6]), "head/blas": ok([3 * t for t in TIMES[:6]])}}))
    found = row(results)
    assert found.get("samples") is None
    sides = [{"ci_99_a": found["stats_ci_99_a"][i], "ci_99_b": found["stats_ci_99_b"][i]} for i in (0, 2)]
    assert is_different(None, None, *sides)
    assert not is_different(TIMES[:6], [3 * t for t in TIMES[:6]], *sides), "the trap is still in asv"
    assert FEWEST_SAMPLES == 7
    [kept] = samples(results, HEAD)
    assert list(kept) == TIMES[:6], "the notes have them all the same"


def test_driver_and_host_never_reach_asv_params(record, results):
    """Every key of params is part of a graph's path: a new driver would start a new series."""
    record(trial())
    params = json.loads(asv_file(results).read_text())["params"]
    assert params == {
        "machine": NAME,
        "kind": "gpu",
        "arch": "sm_90",
        "device": "NVIDIA H200",
        "count": "2",
        "compute_units": "132",
        "chip_id": "2335",
        "power_cap_w": "700",
        "python": "3.12",
        "torch": "2.11.0",
        "triton": "3.6.0",
    }


# ---- idempotence, order, appending --------------------------------------------------------------------------------


def test_twice_is_once(record, results, tmp_path):
    first = record(trial(), trial(number=1))
    before, stats = content(results), {f: f.stat().st_mtime_ns for f in results.rglob("*.json")}
    again = record(trial(), trial(number=1), trial())
    assert (first.added, first.known) == (2, 0)
    assert (again.added, again.known) == (0, 2)
    assert content(results) == before
    assert {f: f.stat().st_mtime_ns for f in results.rglob("*.json")} == stats, "an unchanged file is not even touched"
    assert first.paths == again.paths == [asv_file(results)]


def test_the_order_of_recording_does_not_matter(tmp_path):
    lines = [
        trial(number=n, session=s * 16, minute=m, kernel=k)
        for n, s, m, k in [(0, "5", 0, "gemm"), (1, "5", 0, "gemm"), (0, "6", 9, "gemm"), (0, "5", 1, "softmax")]
    ]
    outcomes = []
    for seed in range(4):
        order = lines[:]
        random.Random(seed).shuffle(order)
        folder = tmp_path / str(seed)
        for index, line in enumerate(order):
            records.record([write(tmp_path / f"{seed}-{index}.jsonl", line)], folder)
        outcomes.append(content(folder))
    assert all(outcome == outcomes[0] for outcome in outcomes[1:])


def test_both_sides_of_an_ab_trial_are_recorded(record, results):
    trees = {"base": tree(BASE), "head": tree(HEAD)}
    both = record(trial({"m16": {"base/triton": ok(), "head/triton": ok([2 * t for t in TIMES])}}, trees=trees))
    assert both.paths == [asv_file(results, HEAD), asv_file(results, BASE)]
    assert one(results, commit=HEAD)["seconds"] == pytest.approx(2 * one(results, commit=BASE)["seconds"])
    assert list(samples(results, BASE)[0]) == TIMES
    assert list(samples(results, HEAD)[0]) == [2 * t for t in TIMES]


def test_the_same_tree_against_itself_counts_once(record, results):
    record(trial({"m16": {"base/triton": ok([5e-3] * 8), "head/triton": ok()}}, trees={"base": tree(), "head": tree()}))
    assert one(results)["samples"] == len(TIMES)


# ---- who wins -----------------------------------------------------------------------------------------------------


def test_a_failure_in_the_newest_session_is_not_hidden(record, results):
    record(trial(), trial({"m16": {"head/triton": failed("wrong", "trial 2 was off")}}, number=1), trial(number=2))
    found = one(results, backend="triton")
    assert (found["status"], found["why"]) == ("wrong", "trial 2 was off")
    assert row(results)["result"][0] is None
    assert samples(results, HEAD) == []


def test_a_new_session_clears_an_old_failure(record, results):
    record(trial({"m16": {"head/triton": failed("crash", "the machine was shut down")}}))
    record(trial(session="6" * 16, minute=30))
    assert one(results, backend="triton")["status"] == "ok"


def test_numbers_by_another_yardstick_are_not_pooled(record, results):
    record(trial())
    changed = tree(declared=declaration(yardstick="2" * 16))
    record(trial({"m16": {"head/triton": ok([9e-3] * 8)}}, trees={"head": changed}, session="6" * 16, minute=7))
    found = one(results, backend="triton")
    assert found["seconds"] == pytest.approx(9e-3)
    assert found["yardstick"] == "2" * 16
    assert (
        row(results)["version"]
        == "2" * 16
        == json.loads((results / "benchmarks.json").read_text())["gemm.track_time"]["version"]
    )


def test_the_declaration_of_the_newest_commit_wins_whatever_is_recorded_last(record, results):
    new = tree(HEAD, declared=declaration(yardstick="2" * 16, cases=["m16", "m128"]), date_ms=2_000)
    old = tree(BASE, declared=declaration(yardstick="1" * 16), date_ms=1_000)
    record(trial(trees={"head": new}))
    record(trial(trees={"head": old}, session="6" * 16, minute=1))
    time = json.loads((results / "benchmarks.json").read_text())["gemm.track_time"]
    assert time["version"] == "2" * 16
    assert time["params"][1] == ["'m16'", "'m128'", "'m64'"], "no case vanishes from asv's pages"


def test_what_asv_left_is_kept_or_put_right(record, results):
    """asv run rewrites a commit's file and benchmarks.json; recording again restores both."""
    record(trial())
    good = content(results)
    data = json.loads(asv_file(results).read_text())
    data["results"]["gemm.track_time"][0] = [None] * 4
    data["results"]["other.track_x"] = [[1.0], [], "1", 5]
    asv_file(results).write_text(json.dumps(data))
    (results / "benchmarks.json").write_text('{"version": 2}')
    record(trial())
    assert row(results, "other.track_x")["result"] == [1.0]
    data = json.loads(asv_file(results).read_text())
    del data["results"]["other.track_x"]
    asv_file(results).write_text(json.dumps(data))
    assert content(results) == good


def test_keep_grids_brings_back_what_asv_run_dropped(record, results):
    record(trial(), trial(kernel="softmax"))
    earlier = records.read_benchmarks(results)
    only = {"version": 2, "gemm.track_time": {**earlier["gemm.track_time"], "params": [["'triton'"], ["'m256'"]]}}
    (results / "benchmarks.json").write_text(json.dumps(only))
    records.keep_grids(results, earlier)
    now = records.read_benchmarks(results)
    assert set(now) == set(earlier)
    assert now["gemm.track_time"]["params"] == [["'triton'", "'blas'"], ["'m16'", "'m64'", "'m256'"]]


# ---- refused, torn, foreign ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("odd", "reason"),
    [(tree(dirty=True), "has local changes"), (tree(None), "has commit None"), (tree("abc123"), "has commit 'abc123'")],
)
def test_what_is_no_commit_is_not_recorded_as_one(record, results, odd, reason):
    outcome = record(trial(trees={"head": odd, "base": tree(BASE)}))
    assert outcome.paths == [asv_file(results, BASE)], "the other side of the trial is recorded"
    [problem] = outcome.problems
    assert reason in problem.why
    assert "`ridgeline run --help`" in problem.why


def test_a_commit_given_by_name_is_recorded(record, results):
    for odd in (tree(None), tree(BASE, dirty=True)):
        outcome = record(trial(trees={"head": odd}, minute=odd["dirty"]), commits={"head": HEAD})
        assert outcome.paths == [asv_file(results)]
        assert outcome.problems == []
    assert one(results, backend="triton")["trials"] == 2
    with pytest.raises(records.RecordError, match="give the full hash"):
        record(trial(), commits={"head": "abc"})


BAD_LINES = {
    "torn": (lambda line: json.dumps(line).encode()[:-200], "the line is torn, its writer was interrupted"),
    "something else": (lambda line: b'{"format": "sarif"}', 'format is "sarif"'),
}
"""Of each kind one; tests/ci/trials/test_file.py has every way in which a line is bad."""


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_text(file.read_text()[:99]),
        lambda file: file.write_text(file.read_text().replace('"version": 2}', '"version": 3}')),
        lambda file: file.write_text("<<<<<<< HEAD\n[]"),
        lambda file: file.unlink(),
    ],
)
def test_asv_s_files_are_made_of_the_notes(record, results, spoil):
    record(trial())
    good = content(results)
    spoil(asv_file(results))
    assert len(records.load(results)) == 2, "what is wrong with a derived file changes no answer"
    records.make_asv_files(results)
    assert content(results) == good
    record(trial(number=1, session="6" * 16))
    before = asv_file(results).stat().st_mtime_ns
    records.make_asv_files(results)
    assert asv_file(results).stat().st_mtime_ns == before, "what is as the notes say is not touched"


# ---- branches, and the form of old -------------------------------------------------------------------------------


def test_records_of_two_branches_merge_without_a_conflict(tmp_path):
    """Both measured the same commits on the same machine, as two checks against one base do."""
    git(tmp_path, "init", "-qb", "main")
    results = tmp_path / "results"
    records.record([write(tmp_path / "first.jsonl", trial(trees={"head": tree("c" * 40)}))], results)
    commit_all(tmp_path)
    for branch, session in (("one", "7"), ("other", "8")):
        git(tmp_path, "checkout", "-qb", branch, "main")
        sides = {"base": tree(BASE), "head": tree(HEAD)}
        cases = {"m16": {"base/triton": ok(), "head/triton": ok()}}
        lines = [trial(cases, number=number, session=session * 16, trees=sides) for number in range(2)]
        records.record([write(tmp_path / f"{branch}.jsonl", *lines)], results)
        (tmp_path / f"{branch}.jsonl").unlink()
        commit_all(tmp_path)
    git(tmp_path, "merge", "-q", "--no-edit", "one")
    assert [name for name in git(tmp_path, "ls-files", "results").split() if name.endswith(".json")] == []
    frame = records.load(results)
    assert frame.attrs["problems"] == []
    assert set(frame[frame["commit"] == HEAD]["trials"]) == {4}
    records.make_asv_files(results)
    assert json.loads(asv_file(results, BASE).read_text())["results"]["gemm.track_time"][10][0] == 4 * len(TIMES)


def commit_all(folder):
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "records")


def test_old_notes_are_read_merged_and_rewritten(results):
    """Plain text of before 2026-11-28; a merge left its markers in it."""
    lines = [json.dumps(trial(number=number)) for number in range(3)]
    old = results / NAME / f"{HEAD[:8]}-{ENV}.notes.jsonl"
    old.parent.mkdir(parents=True)
    old.write_text("\n".join([lines[0], "<<<<<<< HEAD", lines[1], "=======", lines[2], ">>>>>>> other", ""]))
    frame = records.load(results)
    assert list(frame["trials"]) == [3, 3]
    assert len(frame.attrs["problems"]) == len(records.rewrite(results)[1]) == 3
    assert old.exists(), "what cannot be read whole stays"
    old.write_text("".join(f"{line}\n" for line in lines))
    before = records.load(results)
    assert records.rewrite(results, dry_run=True) == (1, [])
    assert old.exists()
    assert records.rewrite(results) == (1, [])
    assert notes_file(results).exists()
    assert not old.exists()
    pd.testing.assert_frame_equal(records.load(results), before)
    whole = content(results)
    assert records.rewrite(results) == (0, [])
    assert content(results) == whole
    assert [json.loads(one.text) for one in records.trials(results, records.Place(NAME, HEAD, ENV))] == [
        json.loads(line) for line in lines
    ], "to the last digit, so that ids hold"


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_in_the_notes_stops_nothing(record, results, name):
    spoil, reason = BAD_LINES[name]
    record(trial(), trial(number=1), trial(number=2))
    notes = notes_file(results)
    lines = gzip.decompress(notes.read_bytes()).split(b"\n")
    lines[2] = spoil(trial(number=1))
    notes.write_bytes(gzip.compress(b"\n".join(lines)))
    for _ in range(2):
        frame = records.load(results)
        assert list(frame["trials"]) == [2, 2]
        assert [reason in said for said in frame.attrs["problems"]] == [True], "told each time"
    [problem] = record(trial(number=1)).problems
    assert reason in problem.why
    assert list(records.load(results)["trials"]) == [3, 3]


def test_one_bad_file_hides_no_other(record, results):
    for index in range(5):
        record(trial(trees={"head": tree(f"{index:x}" * 40)}))
    notes_file(results, "2" * 40).write_bytes(b"")
    notes_file(results, "3" * 40).write_bytes(notes_file(results, "3" * 40).read_bytes()[:300])
    (results / NAME / f"{'7' * 8}-{ENV}.notes.jsonl").write_text(json.dumps(trial()))
    (results / NAME / "README.txt").write_text("not ours")
    (results / "stray.json").write_text("{}")
    frame = records.load(results)
    assert sorted(set(frame["commit"])) == [d * 40 for d in "014"]
    empty, torn, alone = frame.attrs["problems"]
    assert "22222222" in empty
    assert "holds no trial" in empty
    assert "33333333" in torn
    assert "ends early" in torn
    assert "belong elsewhere" in alone
    out = ridgeline("records", "export", "--results", str(results), "--out", str(results.parent / "all.csv"), "--json")
    assert (out.exit_code, json.loads(out.stdout)["problems"][1]) == (2, torn.removesuffix("; left out"))
    commits = ["2" * 40, "3" * 40, "4" * 40]
    assert [records.damage_of(notes_file(results, commit)) is None for commit in commits] == [False, False, True]
    assert [problem.where[-80:][:8] for problem in records.problems_at(results, NAME, commits)] != []


def test_a_dry_run_writes_nothing(record, results, tmp_path):
    outcome = record(trial(), trial(trees={"head": tree(None)}), dry_run=True)
    assert outcome.added == 1
    assert len(outcome.problems) == 1
    assert not results.exists()


# ---- disks and other writers --------------------------------------------------------------------------------------


@pytest.fixture
def small_disk():
    """The operating system refuses to make any file larger than so many bytes: what a full disk does to a writer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [0, 500, 1200])
def test_a_full_disk_loses_nothing(record, results, tmp_path, small_disk, room):
    record(trial())
    before = content(results)
    more = write(tmp_path / "more.jsonl", trial(number=1), trial(number=2))
    small_disk(room)
    with pytest.raises(records.RecordError, match="cannot be written.*What was there is as before.*make room"):
        records.record([more], results)
    small_disk(resource.RLIM_INFINITY)
    assert before.items() <= content(results).items()
    assert not list(results.rglob("*.draft"))
    again = records.record([more], results)
    assert again.added + again.known == 2
    assert len(records.trials(results, records.Place(NAME, HEAD, ENV))) == 3


def test_an_interruption_between_two_files_is_put_right(record, results, tmp_path, monkeypatch):
    """The notes are there and asv's file is not: the trials count as known, and the record is completed."""
    whole = tmp_path / "whole"
    file = write(tmp_path / "t.jsonl", trial(), trial(number=1))
    records.record([file], whole)
    real, calls = os.replace, []

    def power_cut(source, target):
        if str(target).endswith(".json"):
            raise KeyboardInterrupt
        calls.append(target)
        real(source, target)

    monkeypatch.setattr(os, "replace", power_cut)
    with pytest.raises(KeyboardInterrupt):
        records.record([file], results)
    monkeypatch.undo()
    assert len(calls) == 1
    assert set(records.load(results)["trials"]) == {2}, "asv's file is derived"
    assert records.record([file], results).known == 2
    assert content(results) == content(whole)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "results").write_text("a file")
    with pytest.raises(records.RecordError, match="--results DIR"):
        records.record([write(tmp_path / "t.jsonl", trial())], tmp_path / "results")


@pytest.mark.slow
def test_two_writers_lose_nothing(tmp_path, results):
    """Two processes record different trials of one commit, file by file, at the same time."""
    lines = [trial(number=n, session=s * 16, kernel=k) for n in range(6) for s, k in (("5", "gemm"), ("6", "softmax"))]
    files = [write(tmp_path / f"{i}.jsonl", line) for i, line in enumerate(lines)]
    code = (
        "import sys, subprocess\nfrom pathlib import Path\nfrom ci.records import store as records\n"
        "for f in sys.argv[2:]: records.record([Path(f)], Path(sys.argv[1]))"
    )
    root = Path(__file__).resolve().parents[3]
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(results), *map(str, files[i::2])], cwd=root) for i in (0, 1)
    ]
    assert [writer.wait(HANGS_S) for writer in writers] == [0, 0]
    assert len(records.trials(results, records.Place(NAME, HEAD, ENV))) == len(lines)
    assert set(records.load(results)["trials"]) == {6}
    serial = tmp_path / "serial"
    records.record(files, serial)
    for folder in (results, serial):
        records.rewrite(folder)
    assert content(results) == content(serial)


# ---- reading ------------------------------------------------------------------------------------------------------


def test_an_asv_file_without_its_trials_is_named(record, results):
    record(trial())
    notes_file(results).unlink()
    frame = records.load(results)
    assert len(frame) == 0
    [said] = frame.attrs["problems"]
    assert "`ridgeline records add --help`" in said


def test_commits_of_one_second_come_as_in_the_history(record, tmp_path):
    commits = commits_of_one_second(tmp_path, 6)
    for commit in sorted(commits):
        record(*(trial(number=n, trees={"head": tree(commit, date_ms=1_790_000_000_000)}) for n in (0, 1)))
    frame = records.load(tmp_path / "results")
    assert list(frame["commit"].drop_duplicates()) == commits
    dates = frame.groupby("commit")["date"]
    assert set(dates.nunique()) == {1}
    assert list((dates.first()[commits] - dates.first()[commits[0]]).dt.total_seconds() * 1000) == [0, 1, 2, 3, 4, 5]


def test_nothing_recorded(tmp_path):
    frame = records.load(tmp_path / "results")
    assert len(frame) == 0
    assert {"seconds", "status", "market_name"} <= set(frame.columns)
    assert records.trials(tmp_path, records.Place("m", HEAD, ENV)) == []


# ---- intervals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 39, 40, 41, 120])
def test_what_samples_come_to_is_what_numpy_says_to_the_last_digit(count):
    rng = np.random.default_rng(count)
    times, library, cublas = (tuple(rng.lognormal(-7, 0.1, count) for _ in range(3)) for _ in range(3))
    beside = tuple({"blas": one, "cublas": other * 0.5} for one, other in zip(library, cublas, strict=True))
    cell = pooling.Cell("gemm", "triton", "m16", Status.OK, "", times, "", "", "", "", beside)
    found = pooling.pooled_times({cell.key: cell})[cell.key]
    assert (found.q25, found.seconds, found.q75) == tuple(np.percentile(np.concatenate(times), [25, 50, 75]))
    logs = np.log([np.median(one) for one in times])
    reach = special.stdtrit(2, 0.995) * np.std(logs, ddof=1) / np.sqrt(3)
    assert found.low == min(np.exp(logs.mean() - reach), found.seconds * 0.999)
    assert found.paired is not None
    assert found.paired.name == "cublas"
    ratios = [one["cublas"] / own for one, own in zip(beside, times, strict=True)]
    assert found.paired.ratio == np.exp(np.median([np.median(np.log(one)) for one in ratios]))


def test_cells_pooled_together_come_to_what_each_comes_to_alone():
    rng = np.random.default_rng(1)

    def cell(case, trials, libraries):
        times = tuple(rng.lognormal(-7, 0.1, 9) for _ in range(trials))
        beside = tuple({name: rng.lognormal(-7, 0.1, 9) for name in own} for own in libraries)
        return pooling.Cell("gemm", "triton", case, Status.OK, "", times, "", "", "", "", beside)

    shapes = [(2, (("blas",), ("blas",))), (2, (("cublas",), ("blas",))), (2, ((), ("blas",))), (1, ((),)), (0, ())]
    cells = {own.key: own for own in (cell(f"m{n}", *shape) for n, shape in enumerate(shapes * 2))}
    alone = [pooling.pooled_times({key: own}) for key, own in cells.items()]
    assert pooling.pooled_times(cells) == {key: times for own in alone for key, times in own.items()}
    assert [times.paired and times.paired.name for times in pooling.pooled_times(cells).values()][2:4] == ["blas", None]


def test_an_interval_has_a_width_and_few_samples_their_range():
    low, high = pooling.interval([np.full(40, 1e-3), np.full(40, 1e-3)])
    assert (low, high) == pytest.approx((0.999e-3, 1.001e-3))
    assert pooling.interval([np.array([1.0, 3.0, 2.0])]) == (1.0, 3.0)
    assert pooling.interval([np.array([2.0])]) == pytest.approx((1.998, 2.002))


# Names that the project's settings say were given up.


def test_a_renamed_case_goes_on_under_its_new_name_and_what_was_deleted_keeps_its_own(tmp_path, results, record):
    old = declaration(cases=("m16", "m64"))
    arms = {"head/triton": ok(), "head/blas": ok()}
    record(trial({"m16": arms, "m64": arms}, trees={"head": tree(BASE, declared=old)}))
    new = declaration("product", cases=("decode", "m64"))
    line = trial({"decode": arms, "m64": arms}, trees={"head": tree(HEAD, declared=new)})
    record({**line, "kernel": "product"})
    assert set(records.load(results)["kernel"]) == {"gemm", "product"}
    (tmp_path / "ridgeline.toml").write_text('renamed = {"gemm/m16" = "gemm/decode", "gemm" = "product"}\n')
    frame = records.load(results)
    assert set(zip(frame["kernel"], frame["case"], strict=True)) == {("product", "decode"), ("product", "m64")}
    of_case = frame[frame["case"] == "decode"]
    assert set(of_case["commit"]) == {BASE, HEAD}
    assert of_case["case_yardstick"].nunique() == 1, "of which the name is a part: the rest of the definition counts"
    (tmp_path / "ridgeline.toml").write_text('renamed = {"gemm" = ""}\n')
    assert set(records.load(results)["kernel"]) == {"gemm", "product"}


@pytest.mark.parametrize("good", [0, 1])
def test_a_file_of_another_kind_is_one_refusal(good, tmp_path, monkeypatch):
    monkeypatch.chdir(repository(tmp_path / "r"))
    lines = [json.dumps(trial()) for _ in range(good)] + [f"{number},{2 * number},us" for number in range(3000)]
    (tmp_path / "wrong.csv").write_text("\n".join(lines) + "\n")
    done = ridgeline("records", "add", tmp_path / "wrong.csv")
    assert done.exit_code == USAGE
    refused = [line for line in done.stderr.splitlines() if line.startswith("left out: ")]
    assert len(refused) <= 11, "a line each for the first ones"
    if not good:
        assert len(refused) == 1
        assert "none of its 3,000 lines is a trial" in refused[0]


def test_notes_are_checked_once_unless_their_content_is_no_longer_what_their_name_says(record, results, monkeypatch):
    record(trial())
    path, checked = notes_file(results), []
    monkeypatch.setattr(trial_file, "check", checked.append)
    records.recorded_trials(base_of(path), [])
    assert checked == []
    lines = gzip.decompress(path.read_bytes()).replace(b'"duration_s":', b'"duration_s": ')
    path.write_bytes(gzip.compress(lines))
    records.recorded_trials(base_of(path), [])
    assert len(checked) == 1


# Records of sustained calls: a folder of their own, never pooled with spaced ones, and shown beside them.


def sustained(number=0, slower=1.2, **more):
    """A trial in bursts: triton as fast as blas there, and twice as slow where calls are spaced."""
    triton, blas = ([slower * one for one in TIMES] for _ in range(2))
    cases = {"m16": {"head/triton": ok(triton), "head/blas": ok(blas)}}
    line = trial(
        cases, number, session="6" * 16, trees={"head": tree(declared=declaration(yardstick="2" * 16))}, **more
    )
    line["protocol"] |= {"regime": "sustained", "burst_s": 0.3}
    return line | {"id": f"{number:016x}"}


def test_the_two_regimes_of_one_file_are_recorded_apart(tmp_path):
    file = write(tmp_path / "t.jsonl", trial(), sustained(), trial(number=1), sustained(1))
    results = tmp_path / "results"
    done = records.record([file], results)
    assert (done.added, done.known, done.problems) == (4, 0, [])
    assert [path.parent.parent.name for path in done.paths] == ["results", "results_sustained"]
    spaced, bursts = records.load(results), records.load(tmp_path / "results_sustained")
    assert spaced[spaced["backend"] == "triton"]["seconds"].tolist() == [pytest.approx(1e-3)]
    assert bursts[bursts["backend"] == "triton"]["seconds"].tolist() == [pytest.approx(1.2e-3)]
    assert set(spaced["yardstick"].astype(str)) == {"1" * 16}
    again = records.record([file], results)
    assert (again.added, again.known) == (0, 4)


def test_both_regimes_stand_beside_each_other(tmp_path):
    results = tmp_path / "results"
    lines = [trial(number=n) for n in range(3)] + [sustained(n) for n in range(3)]
    records.record([write(tmp_path / "t.jsonl", *lines)], results)
    rows = sustained_vs_spaced(results).set_index("backend")
    ours = rows.loc["triton"]
    assert (ours["kernel"], ours["case"], ours["machine"]) == ("gemm", "m16", NAME)
    assert (ours["commit"], ours["commit_spaced"]) == (HEAD, HEAD)
    assert (ours["seconds_spaced"], ours["seconds"]) == (pytest.approx(1e-3), pytest.approx(1.2e-3))
    assert (ours["paired_ratio_spaced"], ours["paired_ratio"]) == (pytest.approx(0.5), pytest.approx(1.0))
    assert ours["paired_low"] <= 1.0 <= ours["paired_high"]
    assert rows.loc["blas", "baseline"]
    assert len(sustained_vs_spaced(tmp_path / "nothing")) == 0
