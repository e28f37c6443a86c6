"""From the lines of a sweep to the table, the figures and study.json of a study."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from ci.studies import frame, plots, run
from ci.studies.declared import study_named
from ci.studies.declared.grouped_gemm import GROUPED_GEMM
from ci.studies.frame import Study, StudyPart, Tried, best_choices, listed, losses, timed
from ci.sweeps.catalogue import BackendOffer, Catalogue
from ci.sweeps.measured import gathered
from ci.sweeps.pruning import Pruned
from ci.sweeps.run import Progressed
from ci.trials.trial import Trial
from tests.ci import made_trials
from tests.ci.studies.test_declared import made_rows
from tests.ci.sweeps import driver
from tests.ci.sweeps.made_lines import line

ROOT = Path(__file__).parents[3]

KEYS = ("case", "backend", "setting")
COLUMNS = ("us", "tflops", "peak_percent", "intensity")

STUDY = Study(
    name="made",
    title="Made | by hand",
    question="Does it render?",
    source="tests",
    parts=(
        StudyPart("gemm", ("m*",), arms=("blas",), tried=(Tried(knobs={"num_stages": (2, 3)}),)),
        StudyPart("gemm_all_scatter", ("m*",), ranks=(2, 8)),
    ),
    table=lambda rows: listed(timed(rows), KEYS, COLUMNS),
    figures=lambda rows: [
        ("times", plots.lines("Times", timed(rows), "case", "us", "setting")),
        ("calls", plots.lines("Calls", timed(rows), "case", "whole_s", "setting")),
        (
            "heat",
            plots.heatmap("Heat", timed(rows, backend=["triton"]), "compute_units", "setting", "ratio", "case", "x"),
        ),
        ("speed", plots.lines("Speed", timed(rows, backend=["torch"]), "case", "us", "backend")),
    ],
    findings=lambda rows: best_choices(timed(rows, backend=["triton"]), "launch", ["compute_units"], "CUs"),
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


def test_the_table_has_a_row_for_each_key_and_the_fastest_of_two():
    rows = rows_of(lines())
    both = pd.concat([rows, rows.assign(seconds=rows["seconds"] * 2, us=rows["us"] * 2)], ignore_index=True)
    table = STUDY.table(both)
    assert list(table.columns) == [*KEYS, *COLUMNS]
    assert len(table) == 2 * 4  # without the point that is wrong
    assert table["us"].max() < 1300


# ---- what is recorded ------------------------------------------------------------------------------------------------


RECORDED = sorted(ROOT.glob(f"results/studies/*/*/{run.RECORD}"))


@pytest.mark.nightly
@pytest.mark.parametrize("told", RECORDED, ids=lambda path: "-".join(path.parts[-3:-1]))
def test_what_is_recorded_is_what_its_lines_give(told, tmp_path):
    """To the byte: table, findings, and what waits; every figure is drawn."""
    place, study = told.parent, study_named(told.parts[-3])
    [folder] = run.keep(study, [place], tmp_path)
    run.render(study, folder)
    assert (folder / run.RECORD).read_bytes() == told.read_bytes()
    texts = ("table.csv", "table.md", "study.json")
    assert {name: (folder / name).read_text() for name in texts} == {name: (place / name).read_text() for name in texts}
    assert {path.name for path in folder.glob("*.svg")} == {path.name for path in place.glob("*.svg")}


def record_folder(tmp_path, found, name="a"):
    """The folder of a machine's record of the lines."""
    [folder] = run.keep(STUDY, [written(tmp_path / f"{name}.jsonl", found)], tmp_path / name)
    return folder


def frame_of(folder):
    return run.rows_of(STUDY, folder)[0]


def test_a_folder_has_table_figures_and_what_is_missing(tmp_path):
    a, b = (record_folder(tmp_path, lines(), name) for name in "ab")
    first, second = run.render(STUDY, a), run.render(STUDY, b)
    assert first.figures == ("times", "heat"), "no call was timed from the host, and torch has no row"
    assert (a / "times.svg").read_bytes() == (b / "times.svg").read_bytes()
    for text in ("Times", "num_stages=2", "time, µs", made_trials.MACHINE["name"], made_trials.HEAD[:8]):
        assert text in (a / "times.svg").read_text(), text
    assert first.waits == (
        "gemm_all_scatter on 2 ranks: not measured yet",
        "gemm_all_scatter on 8 ranks: waits for 8 GPUs; this machine has 2",
        "gemm, triton: 2 wrong: one sentence (2 of them)",
    )
    text = (a / "table.md").read_text()
    assert text.startswith("**Made | by hand**\n\n| case | backend | changed knobs | time, µs | speed, TFLOPS |")
    assert text.endswith(f"\n- {first.waits[-1]}\n")
    assert json.loads((a / "study.json").read_text())["guidance"] == list(first.findings)
    assert "num_stages=2; loses 0.0%" in second.findings[0]
    assert "calls" in run.render(STUDY, record_folder(tmp_path, lines(whole=[2e-3]), "c")).figures


# ---- the folder of a study -------------------------------------------------------------------------------------------


def test_the_record_has_each_line_once_and_the_same_bytes(tmp_path):
    found = lines()
    path = record_folder(tmp_path, found[:3]) / run.RECORD
    first = path.read_bytes()
    record_folder(tmp_path, reversed(found[:3]))
    assert path.read_bytes() == first
    record_folder(tmp_path, found)
    told = [json.loads(one) for one in gzip.decompress(path.read_bytes()).splitlines()]
    assert told == sorted(found, key=lambda one: (one["started_at"], one["id"]))


# ---- where rows come from --------------------------------------------------------------------------------------------


def written(path, found):
    path.write_text("".join(f"{json.dumps(one)}\n" for one in found))
    return path


def test_files_of_several_machines_and_commits(tmp_path):
    elsewhere = [
        line([({"num_stages": 2}, 0.8)], machine={**made_trials.MACHINE, "name": "h200x1-0a0b0c0d", "count": 1})
    ]
    files = [written(tmp_path / "a.jsonl", lines()), written(tmp_path / "b.jsonl", elsewhere)]
    folders = run.keep(STUDY, files, tmp_path)
    assert {one.name: len(frame_of(one)) for one in folders} == {"h200x2-1a2b3c4d": 10, "h200x1-0a0b0c0d": 2}


def test_the_order_of_lines_does_not_matter_and_the_newest_counts(tmp_path):
    frames = [
        frame_of(record_folder(tmp_path, found, name)) for name, found in (("a", lines()), ("b", reversed(lines())))
    ]
    pd.testing.assert_frame_equal(*frames)
    old = [line([({"num_stages": 2}, 0.5)], sweep="0001")]
    trees = {"head": made_trials.tree(commit="c" * 40)}
    new = [line([({"num_stages": 2}, 0.8)], rung=3, sweep="0002", trees=trees)]
    rows = frame_of(record_folder(tmp_path, [*new, *old], "c"))
    [ratio] = rows["ratio"][(rows["backend"] == "triton") & (rows["point"] == rows["point"].max())]
    assert ratio == pytest.approx(0.8, rel=0.01)


# Measuring the parts of a study: one after the other, from its points to its times.


def test_a_part_is_compiled_ahead_when_the_one_before_it_is_measured(monkeypatch, tmp_path):
    study = dataclasses.replace(STUDY, parts=[StudyPart(name, ("*",), ranks=(2, 8)) for name in ("gemm", "norm")])
    offers, done = [BackendOffer("any", f"w{ranks}", "triton", ranks) for ranks in (2, 8)], []

    def prune(catalogue, asked, *_):
        done.append(f"compile {catalogue.operator}")
        return Pruned(asked)

    def measure(plan, console, began):
        done.append(f"{plan.operator} {len(plan.rungs)} on {plan.world}")
        plan.out.touch()
        return Progressed(None, None)

    monkeypatch.setattr("ci.studies.run.catalogue.ask", lambda name, *_, **__: Catalogue(name, "", 304, offers, 2))
    monkeypatch.setattr("ci.studies.run.prune", prune)
    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(run, "sweep_id", lambda *_: "f3a9")
    console, checkout = Console(quiet=True), driver.plan(tmp_path / "x").checkout
    assert run.measured(run.plans(study, checkout, tmp_path / "x", console, (), None), None, console) == []
    assert "|".join(done) == (
        "compile gemm|gemm 1 on 2|compile norm|norm 1 on 2|gemm 2 on 2|norm 2 on 2|gemm 3 on 2|norm 3 on 2"
    )


# What each choice loses, and backends side by side.


def test_what_each_value_of_a_knob_loses():
    times = {"a": {4: 2.0, 8: 1.0}, "b": {4: 1.0, 8: 4.0}, "c": {4: 1.0}}
    rows = made_rows(
        *(
            {"case": case, "seconds": seconds, "point": "x", "config": {"warps": warps}}
            for case, own in times.items()
            for warps, seconds in own.items()
        )
    )
    made = losses(rows, "warps", ["dtype"]).set_index("warps")
    assert made["loss"].to_dict() == pytest.approx({4: 2 ** (1 / 3), 8: 2.0})
    assert made["worst"].to_dict() == pytest.approx({4: 2.0, 8: 4.0})
    [sentence] = best_choices(rows, "warps", ["dtype"], "type")
    assert sentence == "type fp16: 4; loses 26.0% in the mean, 100.0% at worst; 3 cases"


def test_backends_are_compared_with_a_baseline_that_was_measured():
    speeds = {
        ("grouped_gemm_forward", "dsv3_down_b8_m2048_mild"): {"loop": 4.0, "triton": 5.0, "autotune": 4.5},
        ("grouped_gemm_forward", "lfm2_down_b4_m2048_balanced"): {"loop": 2.0, "triton": 1.0, "autotune": 2.0},
        ("grouped_gemm_wgrad", "lfm2_down_b4_m2048_balanced"): {"loop": 3.0, "triton": 6.0},
    }
    about = {"flops": 10**12, "dims": {"G": 8, "M": 2048, "routing": "mild"}}
    rows = made_rows(
        *(
            {"operator": operator, "kernel": operator, "case": case, "backend": name, "seconds": 1 / speed, **about}
            for (operator, case), own in speeds.items()
            for name, speed in own.items()
        )
    )
    found = list(GROUPED_GEMM.findings(rows))
    assert found[1].startswith("all: triton 1.077 of the loop (geometric mean), wins 2 of 3")
    assert found[-1].startswith("autotune against the best of its candidates: 0.949 in the geometric mean of 2 rows")
    assert [name for name, figure in GROUPED_GEMM.figures(rows) if figure] == ["means"]
    assert list(GROUPED_GEMM.findings(rows[rows["backend"] != "loop"])) == []
