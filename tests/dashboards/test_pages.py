"""What each page says of a history, as it is described in Python."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from ci.history import words
from ci.history.types import EventState, SeriesKey
from ci.records import store
from ci.records.ledger import base_of
from dashboards import cases, compare, events, front, kernel, studies
from dashboards.frame import RATIO, Site, lanes
from tests.ci import made_trials
from tests.ci.sweeps import made_lines
from tests.dashboards import made_history, synthetic
from tests.dashboards.made_history import MI300X, found, texts
from tests.dashboards.test_frame import paired


@pytest.fixture(scope="module")
def site():
    frame = synthetic.lively(60)
    return made_history.site_of(frame, made_history.lively(frame))


def page_of(site, machine):
    return dict(front.front_files(site))[f"{next(lane.slug for lane in site.lanes if lane.machine == machine)}/front"]


# ---- the front page -------------------------------------------------------------------------------------------------


def test_the_first_line_says_what_is_open_with_size_commit_and_author(site):
    page = page_of(site, MI300X)
    assert page["pieces"][0] == {"kind": "text", "text": f"2 regressions are open on {MI300X}", "look": "verdict bad"}
    (open_line,) = [line for line in page["pieces"][1]["lines"] if line[1].endswith("gemm-40")]
    bad = made_history.order(site.frame)[40][0][:8]
    assert open_line[0] == f"▲ gemm, triton slower: +8.10 % [+7.60, +8.70], 2 series on {MI300X}"
    assert open_line[3] == f"since {bad} Commit 40: tiles of 256 #80 (A. Author); or one of 2 before it; open"


def test_every_operator_has_one_row_and_its_axis_the_scale_of_all(site):
    (table,) = [one for one in found(page_of(site, MI300X), "table") if one["name"] == f"{MI300X}-operators"]
    assert [row[0][0] for row in table["rows"]] == ["all_gather", "gemm", "gemm_all_scatter", "rms_norm", "softmax"]
    axes = [chart["units"][0][1]["yAxis"] for row in table["rows"] for chart in row[1:2] if chart]
    assert len({round(axis["max"] / axis["min"], 2) for axis in axes}) == 1


def test_the_row_of_an_operator_shows_what_is_slower_and_open(site):
    lane = next(lane for lane in site.lanes if lane.machine == MI300X)
    worse = [moved.key for event in site.history.events if words.is_regression(event) for moved in event.moved]
    assert worse
    for key in (key for key in worse if key.machine == MI300X):
        shown = front.headline_series(lane, key.kernel, worse)
        assert shown
        assert SeriesKey(MI300X, shown.kernel, shown.backend, shown.case) in worse


def test_two_lines_of_a_chart_differ_in_colour_and_dash(site):
    for chart in found(made_history.data_of(site), "chart"):
        for _, option in chart["units"]:
            looks = {
                one["name"]: (one["color"], str(one["dash"]))
                for one in option["series"]
                if one["type"] == "line" and "level" not in one
            }
            assert len({dash for _, dash in looks.values()}) == len(looks) or len(looks) > 6, chart["title"]


# ---- an operator ----------------------------------------------------------------------------------------------------


def ratio_chart(lane, history=None):
    one = next(one for one in lane.series if not one.baseline)
    those = lane.cases[one.kernel][one.case]
    made = kernel.history_chart(
        Site(made_history.NOWHERE, lane.newest.to_frame().T, [lane], history or made_history.history()), lane, those
    )
    return dict(made["units"])[RATIO]


def lines_of(lane, history=None):
    return ratio_chart(lane, history)["series"]


def test_ratios_at_far_levels_are_drawn_on_a_logarithmic_axis():
    assert "type" not in ratio_chart(paired([1.0, 4.9], paired_with=["a", "b"]))["yAxis"]
    assert ratio_chart(paired([36.0, 1.1], paired_with=["a", "b"]))["yAxis"]["type"] == "log"


def test_a_point_of_few_trials_is_hollow_and_has_no_interval():
    (line,) = lines_of(paired([1.0, 1.01, 1.02], trials=[3, 1, 5]))
    assert line["hollow"].tolist() == [1]
    assert np.isnan(line["low"]).tolist() == [False, True, False]


@pytest.mark.parametrize("column", ["yardstick", "paired_with"])
def test_a_line_ends_where_its_sides_are_not_comparable(column):
    first, second = lines_of(paired([1.0, 1.01, 1.3, 1.31], **{column: ["a", "a", "b", "b"]}))
    assert [math.isnan(one) for one in first["data"]] == [False, False, True, True]
    assert [math.isnan(one) for one in second["data"]] == [True, True, False, False]


def test_a_step_has_its_mark_its_words_and_leads_to_its_event(site):
    lane = next(lane for lane in site.lanes if lane.machine == MI300X)
    (mark,) = [
        one
        for one in dict(kernel.history_chart(site, lane, lane.cases["gemm"]["llm_up_m4096"])["units"])[RATIO]["series"]
        if one["name"] == "steps" and one["links"] == ["events.html#event=gemm-40"]
    ]
    assert mark["color"] == "--bad"
    assert mark["tips"][0].startswith("▲ triton slower: +8.10 % [+7.60, +8.70] since ")


def test_a_library_of_one_point_is_no_line_beside_longer_ones():
    frame = synthetic.with_times([1.0, 1.1, 1.2], [1.0, 1.0, 1.0])
    frame = frame[(frame["backend"] == "triton") | (frame["commit"] == frame["commit"].iloc[0])]
    lane = lanes(frame)[0]
    those = next(iter(next(iter(lane.cases.values())).values()))
    chart = kernel.history_chart(made_history.site_of(frame), lane, those)
    assert {one["name"] for _, option in chart["units"] for one in option["series"]} == {"triton"}


# ---- events ---------------------------------------------------------------------------------------------------------


def test_the_page_of_events_begins_with_what_is_open(site):
    page = events.events_page(site)
    folds = [one for one in page["pieces"] if one["kind"] == "fold"]
    assert folds[0]["look"] == "event slower open"
    states = ["open" in one["look"] for one in folds]
    assert states == sorted(states, reverse=True)
    assert all(len(one["lines"]) == 2 for one in folds)


def test_a_wide_range_says_what_would_narrow_it(site):
    wide = dataclasses.replace(site.history.events[0], between=86, state=EventState.OPEN)
    good, bad = wide.last_good.hash[:8], wide.first_bad.hash[:8]
    piece = events.narrowing(wide)
    assert piece is not None
    assert piece["text"].startswith(f"ridgeline run {good}..{bad} --kernel gemm --case ")
    assert events.narrowing(dataclasses.replace(wide, between=2)) is None


def test_front_page_and_events_say_the_same_words(site):
    folds = {one["name"]: one["lines"] for one in found(events.events_page(site), "fold")}
    for piece in page_of(site, MI300X)["pieces"]:
        for text, address, _, about in piece["lines"] if piece["kind"] == "lines" else ():
            assert folds[address.partition("=")[2]][0] == text
            assert folds[address.partition("=")[2]][1] == about


@pytest.mark.parametrize("text", synthetic.TEXTS)
def test_the_file_of_events_is_whole_whatever_an_author_is_called(site, text):
    first = site.history.events[0]
    event = dataclasses.replace(first, first_bad=dataclasses.replace(first.first_bad, author=text, subject=text))
    history = dataclasses.replace(site.history, events=(event, *site.history.events[1:]))
    made = json.loads(events.files(dataclasses.replace(site, history=history))["events.json"])["events"]
    assert sorted(one["id"] for one in made) == sorted(one.id for one in site.history.events)
    [own] = [one for one in made if one["id"] == event.id]
    assert own["ratio"] == event.ratio
    assert own["first_bad"]["author"] == text


# ---- other pages ----------------------------------------------------------------------------------------------------


def test_a_commit_is_compared_by_columns_of_one_length(site):
    made = dict(compare.compare_files(site))
    for lane in made["compare"]["pieces"][0]["lanes"]:
        for at, (_, _, count) in enumerate(lane["commits"]):
            columns = made[f"{lane['slug']}/at-{at}"]
            assert {len(column) for column in columns} == {count}
            assert all(0 <= n < len(lane["series"]) for n in columns[0])
        before, after = lane["usual"]
        assert before < after


def test_a_roofline_has_a_point_for_each_own_series_under_its_roof(site):
    pages = dict(cases.roofline_files(site))
    (chart,) = found(pages[f"{MI300X}/roofline"], "chart")
    series = {one["name"]: one for one in chart["units"][0][1]["series"]}
    assert any(name.startswith("roof, ") and "fp16" in name for name in series)
    assert [len(series["gemm"][name]) for name in ("data", "tips", "links")] == [6, 6, 6]


def test_scaling_has_a_row_for_each_newest_number_of_several_ranks(site):
    ((_, page),) = cases.scaling_files(site)
    rows = [row for table in found(page, "table") for row in table["rows"]]
    assert {row[2] for row in rows} == {8}
    assert {row[0] for row in rows} == {"all_gather", "gemm_all_scatter"}


def study(folder, **more):
    folder.mkdir(parents=True)
    about = {
        "title": "M sweep",
        "question": "how far?",
        "figures": ["speed"],
        "guidance": ["BM 32; loses 1.0% in the mean"],
    }
    (folder / "study.json").write_text(json.dumps({**about, **more}))
    (folder / "speed.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "table.csv").write_text("M,backend,us\n1,triton,2.5\n16,blas,\n")
    return folder


def test_a_study_is_its_figures_table_and_rules(tmp_path):
    study(tmp_path / "studies" / "m_sweep" / "h200x1")
    site = made_history.site_of(synthetic.history(2), results=tmp_path)
    pieces = dict(studies.studies_files(site))["study/m_sweep/h200x1"]
    assert found(pieces, "image")[0]["source"] == "studies/m_sweep/h200x1/speed.svg"
    assert "BM 32; loses 1.0% in the mean" in texts(pieces)
    assert found(pieces, "table")[0]["rows"] == [[1, "triton", 2.5], [16, "blas", None]]
    assert sorted(studies.files(site)) == [f"studies/m_sweep/h200x1/{name}" for name in ("speed.svg", "table.csv")]


def test_a_sweep_that_was_recorded_in_two_goes_is_shown_whole(tmp_path):
    results = tmp_path / "results"
    for case in ("m16", "m64"):
        line = made_lines.line([({"num_warps": 8}, 0.9)], case=case)
        store.record([made_trials.write(tmp_path / "t.jsonl", line)], results)
    paths = sorted((results / "sweeps").glob("*/*.jsonl.gz"))
    torn = paths[0].with_name(f"{base_of(paths[0]).name}.{'0' * 12}.jsonl.gz")
    torn.write_bytes(b"\x1f\x8b torn")
    pages = dict(studies.studies_files(made_history.site_of(synthetic.history(2), results=results)))
    (shown,) = (pieces for path, pieces in pages.items() if path.startswith("sweep/"))
    assert {row[0] for one in found(shown, "table") for row in one["rows"]} >= {"m16", "m64"}
    assert torn.name in texts(pages["studies"])


def test_of_two_recorded_sweeps_of_an_operator_the_newest_is_shown(tmp_path):
    results = tmp_path / "results"
    for commit, day in (("f" * 40, 1), ("b" * 40, 2)):
        line = made_trials.changed(made_lines.line([({"num_warps": 8}, 0.9)]), "trees head commit", commit)
        line |= {"id": f"{day:016}", "started_at": f"2026-11-0{day}T09:00:00+00:00"}
        store.record([made_trials.write(tmp_path / "t.jsonl", line)], results)
    ((_, shown),) = studies.recorded_sweeps(results)[0].items()
    assert (shown.commit, shown.date) == ("b" * 8, "2026-11-02")
