"""From the lines of a sweep to the table, the figures' data and study.json of a study."""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.points import Point
from benchmarks.studies import study
from benchmarks.studies.types import Compared, Drawn, Listed, Rows, Study, StudyError, StudyPart, Tried
from ci.harness import OneProgram
from ci.sweeps.catalogue import Catalogue
from ci.sweeps.measured import gathered
from ci.sweeps.pruning import Pruned
from ci.sweeps.run import Progressed, SweepPlan
from ci.sweeps.rungs import Rungs
from ci.sweeps.studies import columns, figures, folder, guidance, run
from ci.sweeps.studies.figures import RESHAPES, marginals
from ci.sweeps.studies.guidance import best_cuts, losing, rules, sentence
from ci.sweeps.studies.run import ReadyPart, StudyAsked
from ci.tables import published
from ci.tables.published import PublishedLine
from ci.trials.trial import Trial
from tests.ci import made_trials
from tests.ci.sweeps import driver
from tests.ci.sweeps.made_sweeps import frame, line

PEAK_FP16, HBM = 989.4e12, 4.8e12
"""H200 SXM: kernels/hardware.py."""

STUDY = Study(
    name="made",
    title="Made by hand",
    question="Does it render?",
    source="tests",
    parts=(
        StudyPart("gemm", ("m*",), arms=("blas",), tried=(Tried(knobs={"num_stages": (2, 3)}),)),
        StudyPart("gemm_all_scatter", ("m*",), ranks=(2, 8)),
    ),
    table=Listed(("case", "backend", "setting"), ("us", "tflops", "peak_percent", "intensity", "bound", "to_best")),
    figures=(Drawn("times", "curve", "Times", {"x": "M", "y": "us", "group": "setting"}),),
    guidance=("launch_by_m",),
)


def lines(whole=()):
    points = [({"num_stages": 2}, 0.9), ({"num_stages": 3}, 1.2), ({"num_stages": 4}, "wrong")]
    found = [line(points, case, rung, plain={"blas": 0.95}) for case in ("m16", "m64") for rung in (0, 1)]
    for one in found:
        for arms in one["cases"].values():
            for arm in arms["arms"].values():
                arm |= {"whole_s": list(whole)} if whole and arm["status"] == "ok" else {}
    return found


def frame_of(found):
    return columns.of_sweeps(gathered(Trial.of(one) for one in found))


def row(frame, **wanted):
    for name, value in wanted.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1, wanted
    return frame.iloc[0]


def test_derived_columns_are_their_formulas():
    frame = frame_of(lines(whole=(1.4e-3, 1.5e-3, 1.6e-3)))
    found = columns.with_columns(frame, columns.COLUMNS)
    one = row(found, case="m16", setting="num_stages=2")
    assert one["us"] == pytest.approx(900, rel=0.02)
    assert one["total_us"] == pytest.approx(1500)
    assert one["tflops"] == pytest.approx(1e9 / one["seconds"] / 1e12)
    assert one["peak_percent"] == pytest.approx(100 * 1e9 / one["seconds"] / PEAK_FP16)
    assert one["intensity"] == pytest.approx(1000)
    assert one["roofline_us"] == pytest.approx(1e9 / PEAK_FP16 * 1e6)
    assert one["bound"] == "compute"
    assert one["roofline_percent"] == pytest.approx(one["peak_percent"])
    assert one["to_best"] == pytest.approx(1.0)
    assert row(found, case="m16", backend="triton", point="")["to_best"] == pytest.approx(1 / 0.9, rel=0.02)
    assert one["ratio"] == pytest.approx(0.9, rel=0.01)
    assert row(found, case="m16", backend="blas")["baseline_ratio"] == pytest.approx(1.0)
    assert row(found, case="m16", setting="num_stages=4")["status"] == "wrong"


def test_a_call_is_bound_by_what_takes_longest():
    frame = frame_of(lines())
    frame.loc[frame["case"] == "m64", "hbm_bytes"] = 10**9
    found = columns.with_columns(frame, ["bound", "roofline_us"])
    assert set(found["bound"][found["case"] == "m64"]) == {"HBM"}
    assert row(found, case="m64", backend="blas")["roofline_us"] == pytest.approx(1e9 / HBM * 1e6)


@pytest.mark.parametrize(
    ("config", "world", "count"),
    [
        ({"block_m": 64, "block_n": 128}, 1, 2 * 8),
        ({"block_m": 64, "block_n": 128, "split_k": 4}, 1, 2 * 8 * 4),
        ({"block_m": 128, "block_n": 512}, 2, 1),
        ({"block_n": 128}, 1, math.nan),
    ],
)
def test_tiles_of_an_output(config, world, count):
    assert columns.tiles(config, {"M": 100, "N": 1000}, world) == pytest.approx(count, nan_ok=True)


def test_a_tile_and_a_launch_have_names():
    config = {"block_m": 64, "block_n": 128, "block_k": 32, "num_warps": 4}
    assert columns.tile(config) == "64x128x32"
    assert columns.tile({"block_n": 4, "block_k": 1024}) == "4x1024"
    assert columns.launch(config) == "64x128x32 num_warps=4"
    assert columns.setting({}) == "default"


def test_the_table_has_a_row_for_each_key_and_the_fastest_of_two():
    frame = frame_of(lines())
    found = folder.table(pd.concat([frame, frame.assign(seconds=frame["seconds"] * 2)], ignore_index=True), STUDY.table)
    assert list(found.columns) == [*STUDY.table.keys, *STUDY.table.columns]
    assert len(found) == 2 * 4  # without the point that is wrong
    assert found["us"].max() < 1300
    text = folder.as_markdown(found, "A | title", ["it waits"])
    assert text.startswith("# A &#124; title\n\n| case | backend | changed knobs | time, µs | speed, TFLOPS |")
    assert text.endswith("\n- it waits\n")
    assert folder.as_csv(found).splitlines()[0] == ",".join(found.columns)


def test_a_column_can_be_spread_over_the_backends():
    listed = Listed(("case",), ("us", "ratio"), spread="backend", rows=Rows(pick="plain"))
    found = folder.table(frame_of(lines()), listed)
    assert list(found.columns) == ["case", "blas: us", "triton: us", "blas: ratio", "triton: ratio"]
    assert found["blas: ratio"].tolist() == pytest.approx([0.95, 0.95], rel=0.01)


@pytest.mark.parametrize(
    ("pick", "count"), [("all", 8), ("plain", 4), ("tried", 4), ("best", 4)]
)  # 2 cases: triton, 2 points, blas
def test_rows_are_picked(pick, count):
    assert len(columns.chosen(frame_of(lines()), Rows(pick=pick))) == count
    best = columns.chosen(frame_of(lines()), Rows({"backend": ("triton",)}, "best"))
    assert set(best["knobs"].map(str)) == {"{'num_stages': 2}"}


def test_marginals_are_the_best_of_each_value_over_the_best_of_the_case():
    drawn = Drawn("x", "panels", "X", {"group": "shape", "y": "loss", "panels": [{"x": "stages"}, {"x": "tile"}]})
    frame = pd.DataFrame(
        {"case": ["a", "a", "a", "b"], "shape": "s", "stages": [2, 3, 3, 3], "tile": ["t", "t", "u", "u"]}
        | {"seconds": [1.0, 1.2, 1.1, 5.0]}
    )
    found = marginals(frame, drawn)
    stages = found[found["axis"] == "stages"].set_index("stages")["loss"]
    assert stages.to_dict() == {2: pytest.approx(1.0), 3: pytest.approx(math.sqrt(1.1 * 1.0))}
    tiles = found[found["axis"] == "tile"].set_index("tile")["loss"]
    assert tiles.to_dict() == {"t": pytest.approx(1.0), "u": pytest.approx(math.sqrt(1.1 * 1.0))}


def test_without_a_timed_row_there_is_nothing_to_draw():
    spec = {"group": "shape", "panels": [{"x": "tile", "y": "loss"}]}
    drawn = Drawn("x", "panels", "X", spec, Rows({"backend": ("torch",)}), reshape="marginals")
    assert figures.data(frame_of(lines()), drawn).empty


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_the_spec_of_a_figure_says_units_ceilings_and_where_it_comes_from():
    found = gathered(Trial.of(one) for one in lines())
    frame = columns.of_sweeps(found)
    foot = folder.foot_of(frame, found)
    assert foot.machine == "H200 SXM (h200x2-1a2b3c4d)"
    assert foot.versions == "Python 3.12, torch 2.11.0, Triton 3.6.0, driver 570.1"
    assert (foot.commit, foot.regime) == ("a" * 8, "spaced")
    told = figures.spec(STUDY.figures[0], frame, foot)
    assert told["y"] == {"column": "us", "label": "time", "unit": "µs"}
    assert told["x"] == "M"
    roof = figures.spec(Drawn("r", "roofline", "R", {"group": "backend"}), frame, foot)
    assert roof["ceilings"] == {"peak_tflops": {"fp16": PEAK_FP16 / 1e12}, "hbm_gbs": HBM / 1e9, "link_gbs": None}


def test_a_panel_without_values_is_left_out():
    drawn = Drawn("p", "panels", "P", {"x": "M", "panels": [{"y": "us"}, {"y": "total_us"}]})
    data = figures.data(frame_of(lines()), drawn)
    assert figures.with_values(drawn, data).spec["panels"] == [{"y": "us"}]


# ---- the folder of a study -------------------------------------------------------------------------------------------


def test_a_study_is_rendered_into_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "draw", lambda *given: (["times"], []))
    found = gathered(Trial.of(one) for one in lines())
    frame = columns.of_sweeps(found)
    made = folder.render(STUDY, frame, folder.foot_of(frame, found), tmp_path, Console())
    told = json.loads((tmp_path / "study.json").read_text())
    assert (told["name"], told["machine"], told["figures"]) == ("made", "h200x2-1a2b3c4d", ["times"])
    assert told["waits"] == [
        "gemm_all_scatter on 2 ranks is not measured yet",
        "gemm_all_scatter on 8 ranks waits for a machine with 8 GPUs; this one has 2",
        "gemm, triton: 2 wrong: one sentence",
    ]
    assert [one["rule"] for one in told["guidance"]] == [
        "Recommended configuration by M: gemm, M 16: BLOCK_M=128 num_stages=2"
    ]
    assert (tmp_path / "table.csv").exists()
    assert len(made.table) == 8


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


def test_records_give_plain_arms_and_ratios_of_medians():
    moment = pd.Timestamp("2026-11-01", tz="UTC")
    common = {"machine": "h", "kernel": "gemm", "case": "m16", "world": 1, "shape": '{"M": 16}', "status": "ok"}
    found = [
        {**common, "backend": "triton", "seconds": 2.0, "date": moment, "commit": "a"},
        {**common, "backend": "triton", "seconds": 1.0, "date": moment + pd.Timedelta(days=1), "commit": "b"},
        {**common, "backend": "blas", "seconds": 1.5, "date": moment, "commit": "a"},
        {**common, "backend": "torch", "seconds": 9.0, "date": moment, "commit": "a"},
    ]
    made = columns.of_records(pd.DataFrame(found), STUDY.parts)
    assert {one.backend: (one.seconds, one.ratio) for one in made.itertuples()} == {
        "triton": (1.0, 1.0), "blas": (1.5, 1.5)
    }  # fmt: skip
    assert list(made["dims"]) == [{"M": 16}] * 2


# Measuring the parts of a study: one after the other, from its points to its times.


def test_a_part_is_compiled_ahead_when_the_one_before_it_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parts = tuple(StudyPart(name, ("*",)) for name in ("gemm", "norm"))
    study = Study("s", "S", "?", "", parts, Listed(("M",), ("us",)), (Drawn("f", "curve", "F"),))
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

    monkeypatch.setattr("ci.sweeps.studies.run.prune", prune)
    monkeypatch.setattr(run, "go_on", go_on)
    monkeypatch.setattr(run, "sweep_id", lambda *_: "f3a9")
    checkout = driver.plan(tmp_path / "x").checkout
    with OneProgram() as program:
        made = [ready(part) for part in parts]
        left = run.measured(study, made, checkout, StudyAsked(Path()), tmp_path / "x", program, Console(quiet=True))
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


def test_a_rule_that_saves_too_little_is_not_made():
    times, m = times_of(lambda m: "64x64x128")
    times.loc["k4096_m8", "16x64x128"] = 0.999
    (rule,) = rules(times, m)
    assert (rule.choice, rule.worst_case) == ("64x64x128", "k4096_m8")
    assert rule.worst_loss == pytest.approx(1 / 0.999 - 1)
    assert rule.mean_loss == pytest.approx(math.exp(math.log(1 / 0.999) / 22) - 1)


def test_a_loss_is_against_the_best_point_of_the_case():
    times = pd.DataFrame({"a": [1.0, 1.0], "b": [1.05, 0.8]}, index=["one", "two"])
    (rule,) = rules(times, pd.Series({"one": 64.0, "two": 64.0}))
    assert rule.choice == "b"
    assert rule.worst_loss == pytest.approx(0.05)
    assert (rule.low, rule.high, rule.cases) == (64.0, 64.0, 2)


def test_what_was_not_measured_is_said_and_never_preferred():
    times = pd.DataFrame({"a": [1.0, 1.0, 1.0], "b": [math.nan, math.nan, 0.95]}, index=["x", "y", "z"])
    (rule,) = rules(times, pd.Series({"x": 1.0, "y": 1.0, "z": 1.0}))
    assert (rule.choice, rule.absent) == ("a", 0)
    only = pd.DataFrame({"a": [1.0, math.nan], "b": [math.nan, 1.0]}, index=["x", "y"])
    (rule,) = rules(only, pd.Series({"x": 1.0, "y": 1.0}))
    assert (rule.absent, rule.mean_loss) == (1, pytest.approx(0.0))
    assert "1 of 2 cases lack it" in losing(rule)
    assert rules(pd.DataFrame({"a": [math.nan]}, index=["x"]), pd.Series({"x": 1.0})) == []


def test_rules_are_sentences():
    times, m = times_of(lambda m: "16x64x128" if m <= 16 else "64x64x128")
    guide = guidance.GUIDES["tile_by_m"]
    assert [sentence(guide, one) for one in rules(times, m)] == ["M 1 to 16: 16x64x128", "M 32 to 1024: 64x64x128"]
    assert losing(rules(times, m)[0]) == "loses 0.0% in the mean, 0.0% at worst (k4096_m1); 10 cases"


# Backends side by side: means, wins and regret of made rows against a slow oracle, and of the recorded H200 nights.


COMPARING = study("grouped_gemm")
SPEEDS = {
    ("grouped_gemm_forward", "dsv3_down_b8_m2048_mild"): {"loop": 4.0, "triton": 5.0, "autotune": 4.5},
    ("grouped_gemm_forward", "lfm2_down_b4_m2048_balanced"): {"loop": 2.0, "triton": 1.0, "autotune": 2.0},
    ("grouped_gemm_wgrad", "lfm2_down_b4_m2048_balanced"): {"loop": 3.0, "triton": 6.0},
}


def rows():
    made = []
    for (operator, case), speeds in SPEEDS.items():
        dims = {"G": 8, "M": 2048, "N": 1, "K": 1, "routing": case.split("_")[-1]}
        row = {"operator": operator, "kernel": operator, "case": case, "dims": dims, "flops": 10**12}
        made += [{**row, "backend": name, "seconds": 1 / speed} for name, speed in speeds.items()]
    return frame(*made)


def geometric(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def test_means_wins_and_regret():
    found = figures.compared(rows(), COMPARING.compared)
    ratios = [5 / 4, 1 / 2, 2.0]
    ours = found.columns["triton"]
    assert ours.geometric_mean == pytest.approx(geometric(ratios))
    assert ours.ratio_of_means == pytest.approx((5 + 1 + 6) / (4 + 2 + 3))
    assert (ours.wins, ours.rows) == (2, 3)
    assert found.columns["autotune"].ties == 1
    [regret] = found.regrets
    assert regret.against.geometric_mean == pytest.approx(geometric([4.5 / 5, 1.0]))
    assert regret.candidates == ("loop", "triton"), "what was not measured is no candidate"


def test_groups_are_those_of_operation_model_and_routing():
    said = figures.sentences(COMPARING, rows())
    [wgrad] = [one for one in said if one.startswith("wgrad: triton")]
    assert "2.000 of loop" in wgrad
    assert "wins 1 of 1" in wgrad
    assert {one.split(":")[0] for one in said[:-1]} == {"all", "forward", "wgrad", "dsv3", "lfm2", "mild", "balanced"}
    assert said[-1].startswith("autotune against the best of its candidates (loop 1, triton 2): 0.949")


def test_the_figure_of_means_has_the_same_numbers():
    [drawn] = [one for one in COMPARING.figures if one.reshape]
    made = RESHAPES[drawn.reshape].of(rows(), drawn).set_index(["rows_of", "backend"])["mean_ratio"]
    assert made["all", "triton"] == pytest.approx(geometric([5 / 4, 1 / 2, 2.0]))
    assert made["lfm2", "triton"] == pytest.approx(1.0)
    assert ("all", "loop") not in made.index


def test_without_the_baseline_nothing_is_compared():
    others = rows()
    others = others[others["backend"] != "loop"]
    assert figures.compared(others, COMPARING.compared) is None
    assert figures.sentences(COMPARING, others) == []
    assert figures.means(others, COMPARING.compared).empty
    assert figures.sentences(dataclasses.replace(COMPARING, compared=None), rows()) == []


def test_times_are_compared_the_other_way_round():
    wanted = Compared(("case", "operator"), "loop", value="us", score="lower")
    assert figures.compared(rows(), wanted).columns["triton"].geometric_mean == pytest.approx(geometric([1.25, 0.5, 2]))


def test_the_recorded_nights_of_an_h200():
    """48 cases of three products: what the table shows is what the records hold."""
    machines = folder.read(COMPARING, [Path(__file__).parents[3] / "results"])
    [found] = [one for one in machines if one.machine.startswith("h200x1")]  # `make check` adds its machine
    table = figures.compared(found.frame, COMPARING.compared)
    assert table.rows == 144
    timed = found.frame[found.frame["status"] == "ok"].pivot(
        index=["operator", "case"], columns="backend", values="seconds"
    )
    ratio = timed["loop"] / timed["triton"]
    assert table.columns["triton"].geometric_mean == pytest.approx(geometric(ratio))
    assert table.columns["triton"].wins == int((ratio > 1).sum())
    [regret] = table.regrets
    best = timed[list(regret.candidates)].min(axis=1)
    assert regret.against.worst == pytest.approx(float((best / timed["autotune"]).min()))


# Published numbers stand beside rows of their shape; a level beside rows of its own product only.


LINE = PublishedLine(
    "iris", "iris 07", ("gemm_all_scatter",), "fp16", "https://example.org/a", "MI300X", 8, "events",
    datetime.date(2025, 11, 1), "M", "us", "µs", {"N": 4608}, ((64.0, 40.0), (1024.0, 90.0)),
)  # fmt: skip
LEVEL = dataclasses.replace(LINE, name="maf", label="MAF", x="", y="tflops", unit="TFLOPS", points=((None, 654.0),))


def measured_rows(market: str = "MI300X", **dims: Any) -> pd.DataFrame:
    one = {"operator": "gemm_all_scatter", "dtype": "fp16", "world": 8, "market_name": market}
    return pd.DataFrame([{**one, "dims": {"M": m, "N": 4608, **dims}} for m in (1, 64)])


def names(found: list[Any]) -> list[tuple[str, str, float]]:
    return [(one["label"], one["quantity"], one["y"]) for one in found]


def test_a_line_stands_beside_its_shape_on_any_device() -> None:
    here = figures.points(measured_rows("H200"), ["us", "us", "tflops"], "M", [LINE, LEVEL])
    assert names(here) == [("iris 07", "us", 40.0)], "M = 1024 was not measured"
    assert figures.points(measured_rows(N=4096), ["us"], "M", [LINE]) == []
    assert figures.points(measured_rows(), ["us"], "payload_bytes", [LINE]) == []


def test_a_level_stands_beside_its_own_product() -> None:
    assert names(figures.points(measured_rows(), ["tflops"], "M", [LINE, LEVEL])) == [("MAF", "tflops", 654.0)]
    assert figures.points(measured_rows("MI325X"), ["tflops"], "M", [LEVEL]) == []


def test_the_committed_file_is_what_is_read() -> None:
    every = {one["label"] for one in published.points(published.load())}
    found = figures.points(measured_rows("MI300X").assign(operator="gemm", world=1), ["tflops"], "M")
    assert {one["label"] for one in found} <= every  # type: ignore[index]
    assert "MAF 2025, MI300X, fp16" in {one["label"] for one in found}  # type: ignore[index]
