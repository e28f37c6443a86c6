"""From the lines of a sweep to the table, the figures' data and study.json of a study."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.points import Point
from ci.harness import OneProgram
from ci.studies import folder, frame, plots, run
from ci.studies.backends import backend_findings, backend_means, compare_backends
from ci.studies.declared import study_named
from ci.studies.frame import fastest, listed, plain, timed
from ci.studies.rules import best_cuts, findings, loss_text, marginals, rules
from ci.studies.run import ReadyPart, StudyRequest
from ci.studies.types import Study, StudyError, StudyPart, Tried
from ci.sweeps.catalogue import Catalogue
from ci.sweeps.measured import gathered
from ci.sweeps.pruning import Pruned
from ci.sweeps.run import Progressed, SweepPlan
from ci.sweeps.rungs import Rungs
from ci.trials.trial import Trial
from tests.ci import made_trials
from tests.ci.studies.made_rows import made_rows
from tests.ci.sweeps import driver
from tests.ci.sweeps.made_lines import line

ROOT = Path(__file__).parents[3]

KEYS = ("case", "backend", "setting")
COLUMNS = ("us", "tflops", "peak_percent", "intensity", "bound", "to_best")

STUDY = Study(
    name="made",
    title="Made by hand",
    question="Does it render?",
    source="tests",
    parts=(
        StudyPart("gemm", ("m*",), arms=("blas",), tried=(Tried(knobs={"num_stages": (2, 3)}),)),
        StudyPart("gemm_all_scatter", ("m*",), ranks=(2, 8)),
    ),
    table=lambda rows: listed(timed(rows), KEYS, COLUMNS),
    figures=lambda rows: [
        ("times", plots.lines("Times", [("", timed(rows), "us")], "case", "setting", categories=True)),
        ("calls", plots.lines("Calls", [("", timed(rows), "total_us")], "case", "setting", categories=True)),
        ("speed", plots.roofline("Speed", timed(rows, backend=["torch"]), "backend")),
    ],
    findings=lambda rows: findings(timed(rows, backend=["triton"]), "Best by stages", "compute_units", "launch", "CUs"),
)


def lines(whole=()):
    points = [({"num_stages": 2}, 0.9), ({"num_stages": 3}, 1.2), ({"num_stages": 4}, "wrong")]
    found = [line(points, case, rung, plain={"blas": 0.95}) for case in ("m16", "m64") for rung in (0, 1)]
    for one in found:
        for arms in one["cases"].values():
            for arm in arms["arms"].values():
                arm |= {"whole_s": list(whole)} if whole and arm["status"] == "ok" else {}
    return found


def rows_of(found):
    return frame.of_sweeps(gathered(Trial.of(one) for one in found))


def row(rows, **wanted):
    for name, value in wanted.items():
        rows = rows[rows[name] == value]
    assert len(rows) == 1, wanted
    return rows.iloc[0]


def test_the_table_has_a_row_for_each_key_and_the_fastest_of_two():
    rows = rows_of(lines())
    both = pd.concat([rows, rows.assign(seconds=rows["seconds"] * 2, us=rows["us"] * 2)], ignore_index=True)
    table = STUDY.table(both)
    assert list(table.columns) == [*KEYS, *COLUMNS]
    assert len(table) == 2 * 4  # without the point that is wrong
    assert table["us"].max() < 1300
    text = folder.as_markdown(table, "A | title", ["it waits"])
    assert text.startswith("# A &#124; title\n\n| case | backend | changed knobs | time, µs | speed, TFLOPS |")
    assert text.endswith("\n- it waits\n")
    assert folder.as_csv(table).splitlines()[0] == ",".join(table.columns)


def test_rows_are_chosen_by_what_was_tried():
    rows = rows_of(lines())
    assert set(plain(rows)["backend"]) == {"triton", "blas"}
    assert set(plain(rows)["point"]) == {""}
    assert len(timed(rows, case=["m16"], backend=["triton"])) == 3
    assert timed(rows, no_such_column=[1]).empty
    assert fastest(rows, backend=["triton"])["num_stages"].tolist() == [2, 2]


# ---- what is recorded ------------------------------------------------------------------------------------------------


RECORDED = sorted(ROOT.glob("results/studies/*/*/study.json"))


@pytest.mark.nightly
@pytest.mark.parametrize("told", RECORDED, ids=lambda path: "-".join(path.parts[-3:-1]))
def test_what_is_recorded_is_what_its_lines_give(told: Path, tmp_path):
    """To the byte: table, rules, means, code before and after, and what waits; every figure is drawn."""
    place, one = told.parent, study_named(told.parts[-3])
    timed = (place / folder.RECORD).exists()
    [found] = [rows for rows in folder.read(one, [place if timed else ROOT / "results"]) if rows.machine == place.name]
    for kept in (place / "code.json").exists() * [place / "code.json"]:
        (tmp_path / kept.name).write_bytes(kept.read_bytes())
    foot, checked = folder.foot_of(found.frame, found.found), folder.bits(one, [place], place.name)
    folder.render(one, found.frame, foot, tmp_path, (), checked)
    figures = {path.name for path in tmp_path.glob("*.svg")}
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name not in figures}
    assert made == {name: (place / name).read_bytes() for name in made}
    assert {path.name for path in place.glob("*.[cm]*")} <= made.keys()
    assert {path.name for path in place.glob("*.svg")} == figures


def test_what_waits_and_what_failed_is_said():
    assert folder.waiting(STUDY, rows_of(lines())) == [
        "gemm_all_scatter on 2 ranks is not measured yet",
        "gemm_all_scatter on 8 ranks waits for a machine with 8 GPUs; this one has 2",
        "gemm, triton: 2 wrong: one sentence",
    ]


def test_a_figure_without_values_is_left_out_and_the_others_are_the_same_bytes(tmp_path):
    rows = rows_of(lines())
    foot = folder.foot_of(rows)
    first = folder.render(STUDY, rows, foot, tmp_path / "a")
    assert first.figures == ("times",), "no call was timed from the host, and torch has no row"
    folder.render(STUDY, rows, foot, tmp_path / "b")
    drawn = [(tmp_path / name / "times.svg").read_bytes() for name in "ab"]
    assert drawn[0] == drawn[1]
    for text in ("Times", "changed knobs", "num_stages=2", "time, µs", foot.machine, foot.commit):
        assert text.encode() in drawn[0] or text == "changed knobs", text
    assert folder.render(STUDY, rows_of(lines(whole=[2e-3])), foot, tmp_path / "c").figures == ("times", "calls")


# ---- the folder of a study -------------------------------------------------------------------------------------------


def test_the_record_has_each_line_once_and_the_same_bytes(tmp_path):
    texts = [json.dumps(one) for one in lines()]
    path = folder.keep(tmp_path, texts[:3])
    first = path.read_bytes()
    folder.keep(tmp_path, reversed(texts[:3]))
    assert path.read_bytes() == first
    folder.keep(tmp_path, texts)
    kept = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert sorted(kept) == sorted(texts)
    assert [json.loads(one)["started_at"] for one in kept] == sorted(json.loads(one)["started_at"] for one in kept)


# ---- where rows come from --------------------------------------------------------------------------------------------


def written(path, found):
    path.write_text("".join(f"{json.dumps(one)}\n" for one in found))
    return path


def test_files_of_several_machines_and_commits(tmp_path):
    elsewhere = [
        line([({"num_stages": 2}, 0.8)], machine={**made_trials.MACHINE, "name": "h200x1-0a0b0c0d", "count": 1})
    ]
    found = folder.read(STUDY, [written(tmp_path / "a.jsonl", lines()), written(tmp_path / "b.jsonl", elsewhere)])
    assert {one.machine: len(one.frame) for one in found} == {"h200x2-1a2b3c4d": 10, "h200x1-0a0b0c0d": 2}
    assert [len(one.lines) for one in found] == [4, 1]


def test_the_order_of_lines_does_not_matter(tmp_path):
    [one] = folder.of_files(STUDY, [written(tmp_path / "a.jsonl", lines())])
    [other] = folder.of_files(STUDY, [written(tmp_path / "b.jsonl", reversed(lines()))])
    pd.testing.assert_frame_equal(one.frame, other.frame)


def test_regimes_are_kept_apart(tmp_path):
    both = [line([({"num_stages": 2}, 0.8)], batch=n, regime=one) for n, one in enumerate(("spaced", "sustained"))]
    found = folder.of_files(STUDY, [written(tmp_path / "a.jsonl", both)])
    assert [(one.regime, len(one.frame), len(one.lines)) for one in found] == [("spaced", 2, 1), ("sustained", 2, 1)]
    folders = [folder.folder_of(tmp_path, "made", one.machine, one.regime).name for one in found]
    assert folders == ["h200x2-1a2b3c4d", "h200x2-1a2b3c4d-sustained"]


def test_of_a_point_that_was_measured_twice_the_newest_counts(tmp_path):
    old = [line([({"num_stages": 2}, 0.5)], sweep="0001")]
    trees = {"head": made_trials.tree(commit="c" * 40)}
    new = [line([({"num_stages": 2}, 0.8)], rung=3, sweep="0002", trees=trees)]
    [found] = folder.of_files(STUDY, [written(tmp_path / "a.jsonl", [*new, *old])])
    assert row(found.frame, backend="triton", point=found.frame["point"].max())["ratio"] == pytest.approx(0.8, rel=0.01)


def test_nothing_of_the_study_is_said(tmp_path):
    other = dataclasses.replace(STUDY, parts=(StudyPart("all_gather", ("*",)),))
    with pytest.raises(StudyError, match="nothing of the study made, which has all_gather"):
        folder.read(other, [written(tmp_path / "a.jsonl", lines())])


def test_equal_bits_are_told_from_checks(tmp_path):
    check = {"format": "ridgeline-check", "version": 1, "at": "2026-11-22T00:00:00+00:00", "kernel": "gemm"}
    check |= {"case": "m16", "world": 1, "dtype": "fp16", "commit": None, "holds_for": {"machine": "here"}}
    arms = {"triton": {"status": "ok", "error": {"norm": 0.0}}, "blas": {"status": "ok", "error": {"norm": 2e-3}}}
    arms["torch"] = {"status": "unsupported", "why": "no"}
    (tmp_path / "checks").mkdir()
    written(tmp_path / "checks" / "x.jsonl", [check | {"arms": arms}])
    study = dataclasses.replace(STUDY, parts=(StudyPart("gemm", ("m16",), arms=("blas", "torch"), check=True),))
    assert [one.rule for one in folder.bits(study, [tmp_path], "here")] == [
        "Equal bits, m16, blas: differs from the reference by 0.002 (norm)",
        "Equal bits, m16, triton: the reference's bits",
    ]
    assert folder.bits(study, [tmp_path], "there") == []


# Measuring the parts of a study: one after the other, from its points to its times.


def test_a_part_is_compiled_ahead_when_the_one_before_it_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parts = tuple(StudyPart(name, ("*",)) for name in ("gemm", "norm"))
    study = dataclasses.replace(STUDY, parts=parts)
    done: list[str] = []

    def ready(part: StudyPart) -> ReadyPart:
        points = {"m16": [Point("m16", "triton", {"num_warps": 2})]}
        return ReadyPart(part, Catalogue(part.operator, "gfx942", 304, ()), points, None, Rungs((8,)))

    def prune(catalogue: Catalogue, asked: Mapping[str, Sequence[Point]], *_: object) -> Pruned:
        done.append(f"{catalogue.operator} compiled")
        return Pruned(asked)

    def go_on(plan: SweepPlan, console: Console, follow: object) -> Progressed:
        done.append(f"{plan.operator} measured by {getattr(follow, '__self__', None) is program}")
        return Progressed(None, None)

    monkeypatch.setattr("ci.studies.run.prune", prune)
    monkeypatch.setattr(run, "go_on", go_on)
    monkeypatch.setattr(run, "sweep_id", lambda *_: "f3a9")
    checkout = driver.plan(tmp_path / "x").checkout
    with OneProgram() as program:
        made = [ready(part) for part in parts]
        left = run.measured(study, made, checkout, StudyRequest(Path()), tmp_path / "x", program, Console(quiet=True))
    assert left == []
    assert done == ["gemm compiled", "gemm measured by True", "norm compiled", "norm measured by True"]


# Rules from points: the best cut of a range is found, and what each rule loses is what it loses.


def cost(losses, cuts, price):
    return sum(min(sum(row[c] for row in losses[a:b]) for c in range(len(losses[0]))) + price for a, b in cuts)


def every_cut(count):
    """All ways to divide `count` rows into neighbouring ranges."""
    for inner in itertools.product((False, True), repeat=count - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(inner) if cut), count]
        yield list(itertools.pairwise(edges))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 7).flatmap(
        lambda rows: st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=rows, max_size=rows)
    ),
    st.floats(0.001, 0.5),
)
def test_no_other_cut_costs_less(losses, price):
    found = best_cuts(np.array(losses), price)
    assert [start for start, _ in found[1:]] == [end for _, end in found[:-1]]
    assert (found[0][0], found[-1][1]) == (0, len(losses))
    oracle = min(cost(losses, cuts, price) for cuts in every_cut(len(losses)))
    assert cost(losses, found, price) == pytest.approx(oracle)


def times_of(best_of):
    """Cases m1..m1024 x two weights; the named tile is best, the others take 10 % and 30 % longer."""
    tiles = ("16x64x128", "64x64x128", "128x256x64")
    rows = {}
    for power in range(11):
        for k in (4096, 14336):
            best = best_of(2**power)
            others = [tile for tile in tiles if tile != best]
            rows[f"k{k}_m{2**power}"] = {best: 1.0, others[0]: 1.1, others[1]: 1.3}
    frame = pd.DataFrame(rows).T
    return frame, pd.Series({name: float(name.rpartition("m")[2]) for name in frame.index})


def test_a_known_answer_is_found():
    times, m = times_of(lambda m: "16x64x128" if m <= 16 else "64x64x128" if m <= 128 else "128x256x64")
    found = rules(times, m)
    assert [(one.low, one.high, one.choice) for one in found] == [
        (1, 16, "16x64x128"), (32, 128, "64x64x128"), (256, 1024, "128x256x64")
    ]  # fmt: skip
    assert [one.mean_loss for one in found] == [pytest.approx(0.0)] * 3
    assert sum(one.cases for one in found) == len(times)


def test_what_was_not_measured_is_said_and_never_preferred():
    times = pd.DataFrame({"a": [1.0, 1.0, 1.0], "b": [math.nan, math.nan, 0.95]}, index=["x", "y", "z"])
    (rule,) = rules(times, pd.Series({"x": 1.0, "y": 1.0, "z": 1.0}))
    assert (rule.choice, rule.absent) == ("a", 0)
    only = pd.DataFrame({"a": [1.0, math.nan], "b": [math.nan, 1.0]}, index=["x", "y"])
    (rule,) = rules(only, pd.Series({"x": 1.0, "y": 1.0}))
    assert (rule.absent, rule.mean_loss) == (1, pytest.approx(0.0))
    assert "1 of 2 cases lack it" in loss_text(rule)
    assert rules(pd.DataFrame({"a": [math.nan]}, index=["x"]), pd.Series({"x": 1.0})) == []


def test_what_a_value_of_a_knob_can_reach():
    rows = made_rows(
        *(
            {"case": case, "seconds": seconds, "point": "x", "config": {"warps": warps}}
            for case, times in (("a", {4: 2.0, 8: 1.0}), ("b", {4: 1.0, 8: 4.0}))
            for warps, seconds in times.items()
        )
    )
    reached = marginals(rows, "warps", "dtype")
    assert dict(zip(reached["warps"], reached["loss"], strict=True)) == pytest.approx({4: 2**0.5, 8: 2.0})


# Backends side by side.


SPEEDS = {
    ("grouped_gemm_forward", "dsv3_down_b8_m2048_mild"): {"loop": 4.0, "triton": 5.0, "autotune": 4.5},
    ("grouped_gemm_forward", "lfm2_down_b4_m2048_balanced"): {"loop": 2.0, "triton": 1.0, "autotune": 2.0},
    ("grouped_gemm_wgrad", "lfm2_down_b4_m2048_balanced"): {"loop": 3.0, "triton": 6.0},
}
BY_CASE = {"keys": ("case", "operator"), "value": "us", "baseline": "loop", "score": "lower"}


def speeds():
    return made_rows(
        *(
            {"operator": operator, "kernel": operator, "case": case, "flops": 10**12, "backend": name, "seconds": 1 / s}
            for (operator, case), of_backends in SPEEDS.items()
            for name, s in of_backends.items()
        )
    )


def test_backends_are_compared_with_a_baseline_that_was_measured():
    compared = compare_backends(speeds(), **BY_CASE)
    assert compared.against.columns["triton"]["wins"] == 2
    assert compared.against.columns["triton"]["geometric_mean"] == pytest.approx((1.25 * 0.5 * 2) ** (1 / 3))
    regret = {"autotune": ("loop", "triton", "ck"), "absent": ("loop",)}
    [sentence] = [one.rule for one in backend_findings(speeds(), **BY_CASE, regret=regret) if "candidates" in one.rule]
    assert sentence.startswith("autotune against the best of its candidates (loop 1, triton 2): 0.949 in the geometric")
    means = backend_means(speeds(), **BY_CASE, by=(("operator",),))
    assert means["rows_of"].unique().tolist() == ["all", "grouped_gemm_forward", "grouped_gemm_wgrad"]
    others = speeds()[lambda made: made["backend"] != "loop"]
    assert compare_backends(others, **BY_CASE) is None
    assert list(backend_findings(others, **BY_CASE)) == []
    assert backend_means(others, **BY_CASE).empty
