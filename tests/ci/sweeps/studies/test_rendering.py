"""From the lines of a sweep to the table, the figures' data and study.json of a study."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math

import pandas as pd
import pytest
from rich.console import Console

from benchmarks.studies.types import Drawn, Listed, Rows, Study, StudyError, StudyPart, Tried
from ci.sweeps.measured import gathered
from ci.sweeps.studies import columns, figures, folder
from ci.sweeps.studies.figures import marginals
from ci.trials.trial import Trial
from tests.ci import made_trials
from tests.ci.sweeps.made_sweeps import line

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
