"""What the pages of events load, their feed and their files."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from ci.__main__ import VERBS
from ci.commands.site import site
from ci.history.exact import CodePoint, CodeRecord
from ci.history.types import Cause, CommitFacts, Direction, EventKind, HistoryEvent, Moved, SeriesKey
from ci.report.json_report import ReportError
from ci.stats.types import Step
from dashboards import __main__ as program
from dashboards.lanes import tidy
from dashboards.sources import SiteHistory
from dashboards.views import SiteInput, events, pull_request
from tests.dashboards import made_history, made_site, synthetic
from tests.dashboards.made_history import MI300X
from tests.dashboards.synthetic import TEXTS

ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return synthetic.lively(60)


@pytest.fixture(scope="module")
def shown_site(frame: pd.DataFrame) -> SiteInput:
    return made_site.site_of(tidy(frame), made_history.lively(frame))


def hostile_events(frame: pd.DataFrame) -> list[HistoryEvent]:
    """One event per hostile text, which is in every text of it."""
    key = SeriesKey(MI300X, "gemm", "triton", "llm_up_m4096")
    plain = made_history.event(frame, [key], 20, 1.1)
    return [_hostile(plain, text, n) for n, text in enumerate(TEXTS)]


def _hostile(event: HistoryEvent, text: str, number: int) -> HistoryEvent:
    facts = CommitFacts(event.first_bad.hash, event.first_bad.date_ms, text, text, 7)
    moved = dataclasses.replace(event.moved[0], key=SeriesKey(*[text] * 4))
    told = {"machine": text, "owner": text, "reason": text, "link": text, "causes": (Cause(text, text),)}
    return dataclasses.replace(event, id=f"{number:010x}", first_bad=facts, last_good=facts, moved=(moved,), **told)


def test_the_page_loads_every_event_with_its_largest_series_first(shown_site: SiteInput) -> None:
    found = made_site.data_of(events.VIEW, shown_site)["views/events"]["events"]
    assert [event["first_bad"]["date_ms"] for event in found] == sorted(
        (event.first_bad.date_ms for event in shown_site.history.events), reverse=True
    )
    gemm = next(event for event in found if event["id"] == "gemm-40")
    assert gemm["moved"][0] == ["gemm", "triton", "llm_down_m64", 1.081, 1.076, 1.087, "ratio"]
    assert gemm["causes"][0] == {"kind": "triton", "text": "3.6.0 → 3.8.0"}
    assert "parents" not in gemm["first_bad"]


def test_what_was_looked_at_counts_series_and_points_with_a_time(shown_site: SiteInput, frame: pd.DataFrame) -> None:
    told = made_site.data_of(events.VIEW, shown_site)["views/verdict"]["looked"]
    timed = frame[frame["status"] == "ok"]
    assert told["points"] == len(timed)
    assert told["series"] == timed.groupby(["machine", "kernel", "case", "backend"]).ngroups
    assert told["newest"]["hash"] == timed.sort_values("date")["commit"].iloc[-1]
    assert events.looked(made_site.site_of(tidy(frame).iloc[:0]))["newest"] is None


def test_a_point_apart_is_undecided_until_an_event_has_it() -> None:
    seconds = [1e-3] * 9 + [1.3e-3]
    frame = synthetic.with_times(seconds, [1e-3] * 10)
    key = SeriesKey(MI300X, "gemm", "triton", "llm_down_m64")
    (row,) = events.undecided(made_site.site_of(frame), ())
    assert tuple(row[name] for name in ("machine", "kernel", "backend", "case")) == key
    assert row["speed"] == pytest.approx(1 / 1.3 - 1, abs=1e-4)
    event = made_history.event(frame, [key], 9, 1.3)
    assert events.undecided(made_site.site_of(frame), [event]) == []
    assert events.undecided(made_site.site_of(synthetic.with_times([1e-3] * 10, [1e-3] * 10)), ()) == []


def test_the_steps_of_a_kernel_name_their_event_and_the_ratio_comes_before_the_seconds(frame: pd.DataFrame) -> None:
    key = SeriesKey(MI300X, "gemm", "triton", "llm_up_m4096")
    event = made_history.event(frame, [key], 40, 1.081)
    ratio = event.moved[0]
    seconds = dataclasses.replace(ratio, judged_by="seconds", step=dataclasses.replace(ratio.step, ratio=1.09))
    other = Moved(key, Step(10, 1.0, 1.2, 1.2, 1.1, 1.3, 1e-9), Direction.SLOWER, "ratio", "c" * 40, "b" * 40)
    known = SiteHistory((event,), {key: (other, ratio, seconds)})
    steps = events.steps_by_kernel(made_site.site_of(tidy(frame), known))["gemm"]
    assert [(step["by"], step["ratio"], step["event"]) for step in steps] == [
        ("ratio", 1.081, "gemm-40"),
        ("ratio", 1.2, None),
    ]


def test_releases_are_told_where_a_version_is_another(frame: pd.DataFrame) -> None:
    rows = tidy(frame)
    order = list(rows[rows["machine"] == MI300X].drop_duplicates("commit")["commit"])
    late = rows["commit"].isin(order[30:])
    rows["driver"] = np.where(late, "6.10", "6.8")
    rows["runtime"] = np.where(late, "HIP 7.1", "")
    found = events.versions(made_site.site_of(rows))
    assert found[MI300X] == {order[30]: ["driver 6.8 → 6.10"]}, "what was not known before is no release"


# ---- files ----------------------------------------------------------------------------------------------------------


def test_the_feed_is_what_rfc_4287_asks_for(shown_site: SiteInput) -> None:
    files = made_site.files_of(events.VIEW, shown_site)
    root = ElementTree.fromstring(files["feed.xml"])
    entries = root.findall(f"{ATOM}entry")
    assert len(entries) == len(shown_site.history.events)
    for element in (root, *entries):
        for name in ("id", "title", "updated"):
            assert len(element.findall(f"{ATOM}{name}")) == 1
            assert element.findtext(f"{ATOM}{name}")
    ids = [entry.findtext(f"{ATOM}id") for entry in entries]
    assert len(set(ids)) == len(ids)
    updated = [entry.findtext(f"{ATOM}updated") for entry in entries]
    assert root.findtext(f"{ATOM}updated") == max(updated)
    gemm = next(entry for entry in entries if entry.findtext(f"{ATOM}id") == "urn:ridgeline:event:gemm-40")
    assert (
        gemm.findtext(f"{ATOM}title")
        == f"gemm 8.1 % slower on {MI300X}: 2 shapes since {_hash(shown_site, 'gemm-40')}, open"
    )
    assert gemm.find(f"{ATOM}link").get("href") == "events.html#event=gemm-40"
    assert "by A. Author" in gemm.findtext(f"{ATOM}content")
    assert made_site.files_of(events.VIEW, made_site.site_of(shown_site.frame))["feed.xml"].count(b"<entry") == 0


def _hash(shown_site: SiteInput, name: str) -> str:
    return next(event for event in shown_site.history.events if event.id == name).first_bad.hash[:8]


def test_an_entry_keeps_its_id_and_date_while_history_grows(frame: pd.DataFrame) -> None:
    first, *_, last = sorted(made_history.lively(frame).events, key=lambda event: event.first_bad.date_ms)
    before, after = (
        {
            e.findtext(f"{ATOM}id"): e.findtext(f"{ATOM}updated")
            for e in ElementTree.fromstring(events.atom(known)).iter(f"{ATOM}entry")
        }
        for known in ([first], [last, first])
    )
    assert before.items() <= after.items()


def test_hostile_texts_stay_texts_in_the_feed_and_the_files(frame: pd.DataFrame) -> None:
    known = made_history.history(*hostile_events(frame))
    files = made_site.files_of(events.VIEW, made_site.site_of(tidy(frame), known))
    contents = [e.findtext(f"{ATOM}content") for e in ElementTree.fromstring(files["feed.xml"]).iter(f"{ATOM}entry")]
    assert len(contents) == len(TEXTS)
    assert any("<img src=x onerror=window.pwned=1>" in content for content in contents)
    assert len(json.loads(files["events.json"])["events"]) == len(TEXTS)
    rows = list(csv.DictReader(io.StringIO(files["events.csv"].decode(), newline="")))
    assert len(rows) == len(TEXTS)
    assert not [row["subject"] for row in rows if row["subject"][:1] in ("=", "@", "+", "-")]


def test_numbers_that_are_not_finite_are_holes(frame: pd.DataFrame) -> None:
    key = SeriesKey("isa", "gemm", "triton", "llm_up_m4096")
    event = made_history.event(frame, [key], 20, math.inf, kind=EventKind.CODE)
    told = made_site.received(events.listed(event))
    assert (told["ratio"], told["moved"][0][3]) == (None, None)


# ---- machine code ---------------------------------------------------------------------------------------------------


def records() -> list[CodeRecord]:
    def point(series: str, configuration: str = "m64", arch: str = "gfx942") -> CodePoint:
        return CodePoint("gemm", series, "triton", configuration, arch)

    vgpr, spills, labelled = point("vgpr"), point("spills"), point("vgpr", "m64 [stage 2]", "gfx950")
    values: list[dict[CodePoint, float | None]] = [
        {vgpr: 128.0, spills: 0.0},
        {vgpr: 128.0, spills: 0.0, labelled: 64.0},
        {vgpr: None, labelled: 64.0},
        {vgpr: 256.0, spills: 12.0, labelled: 64.0},
    ]
    return [CodeRecord(f"{n:040x}", 60_000 * n, "triton3.8.0", value) for n, value in enumerate(values)]


def spread(page: dict[str, Any], changes: list[list[Any]]) -> list[Any]:
    """The values at every commit, as the page makes them."""
    values: list[Any] = []
    for n, (start, value) in enumerate(changes):
        end = changes[n + 1][0] if n + 1 < len(changes) else len(page["commits"])
        values += [events.ABSENT] * (start - len(values)) + [value] * (end - start)
    return values


def test_changes_of_machine_code_say_every_value() -> None:
    page = events.by_kernel(records())["gemm"]
    found = {(s["backend"], s["case"], s["label"], s["arch"]): s["metrics"] for s in page["series"]}
    assert found["triton", "m64", "", "gfx942"] == {
        "vgpr": [[0, 128], [2, None], [3, 256]],
        "spills": [[0, 0], [2, "absent"], [3, 12]],
    }
    for record, n in zip(records(), range(4), strict=True):
        for point, value in record.values.items():
            case, label = ("m64", "stage 2") if "[" in point.configuration else ("m64", "")
            changes = found[point.backend, case, label, point.arch][point.series]
            assert spread(page, changes)[n] == value
    assert page["commits"][1] == [f"{1:040x}", "1970-01-01 00:01"]


def test_what_is_executed_stands_beside_what_is_contained() -> None:
    places = [CodePoint("gemm", name, "triton", "m64", "gfx942") for name in ("vgpr", "executed_instructions")]
    found = [CodeRecord(f"{n:040x}", n * 60_000, "triton3.8.0", dict.fromkeys(places, 100.0 + n)) for n in range(2)]
    [line] = events.by_kernel(found)["gemm"]["series"]
    assert line["metrics"] == {"vgpr": [[0, 100], [1, 101]], "executed_instructions": [[0, 100], [1, 101]]}
    units = events.by_kernel(found)["gemm"]["units"]
    assert (units["executed_memory_bytes"], units["executed_instructions"]) == ("bytes", "")


def test_a_kernel_without_recorded_code_has_an_empty_list(shown_site: SiteInput) -> None:
    told = made_site.data_of(events.VIEW, shown_site)["views/history-gemm"]
    assert told["code"] == events.no_code()
    assert {step["event"] for step in told["steps"]} >= {"gemm-40", "machine-20", "library-25"}


# ---- what a page tells people to run --------------------------------------------------------------------------------


def test_pages_offer_no_verb_that_does_not_exist() -> None:
    root = Path(events.__file__).parents[1]
    texts = {
        path: path.read_text()
        for path in root.rglob("*")
        if path.suffix in (".js", ".html") and "echarts" not in path.parts
    }
    two = "|".join({verb.split()[0] for verb in VERBS if " " in verb})
    offered = {verb for text in texts.values() for verb in re.findall(rf"ridgeline ((?:(?:{two}) )?[a-z]+)", text)}
    assert {"ab", "events ack", "bisect", "site"} <= offered
    assert offered <= set(VERBS)


# The page of a pull request, from the golden report files.


GOLDEN = Path(__file__).parents[1] / "golden" / "report"


@pytest.mark.parametrize("name", ["slower", "faster", "same", "broken", "unsure", "hostile"])
def test_the_page_has_every_case_and_number_of_a_report(name: str) -> None:
    path = GOLDEN / f"{name}.json"
    whole, taken = json.loads(path.read_text()), pull_request.read(path)
    assert (taken["verdict"], taken["why"]) == (whole["verdict"], whole["why"])
    assert taken["cases"] == [{key: case[key] for key in pull_request.SHAPE["cases"][0]} for case in whole["cases"]]
    assert taken["skipped"] == whole["skipped"]
    assert taken["floors"] == whole["floors"]


def test_the_page_has_the_causes_of_a_report(tmp_path: Path) -> None:
    whole = json.loads((GOLDEN / "slower.json").read_text())
    tried = {
        "kind": "knob",
        "name": "num_stages",
        "change": "3 → 2",
        "answer": "explains all",
        "why": "",
        "part_of": "",
    }
    numbers = {"share": 0.99, "ratio": 1.0001, "low": 0.998, "high": 1.002, "trials": 3}
    cause = {"cases": ["gemm/triton/m64"], "measured": "gemm/triton/m64", "state": "proven", "sentence": "knob"}
    cause |= {"tried": [tried | numbers], "code": ["LDS bytes: 3 → 2"], "experiments": 1, "trials": 3, "seconds": 12.5}
    path = tmp_path / "report.json"
    path.write_text(json.dumps({**whole, "explanations": [cause]}))
    assert pull_request.read(path)["explanations"] == [cause]
    strange = {**cause, "tried": [{**tried, "ratio": "1"}, 3], "code": [1], "trials": "x"}
    (found,) = pull_request.taken({"explanations": [strange, "y"]})["explanations"]
    assert (found["code"], found["trials"], found["tried"][0]["ratio"], len(found["tried"])) == ([], 0, None, 1)


def test_only_the_types_that_the_page_expects_pass() -> None:
    value = {"verdict": ["SLOWER"], "cases": [{"case": 1, "ratio": "1.0", "trials": True}, "x"], "machine": "y"}
    taken = pull_request.taken(value)
    assert (taken["verdict"], taken["machine"]) == ("", {})
    assert [(case["case"], case["ratio"], case["trials"]) for case in taken["cases"]] == [("", None, None)]


@pytest.mark.parametrize(
    ("content", "why"), [("{", "not JSON"), ("[]", "not a report"), ('{"format": "x"}', "not a report")]
)
def test_another_file_is_refused_by_name(
    tmp_path: Path, content: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(pull_request.ReportFileError, match=why):
        pull_request.read(path)
    folders = ["--results", str(tmp_path / "none"), "--out", str(tmp_path / "site")]
    assert program.main([*folders, "--report", str(path)]) == 3
    assert why in capsys.readouterr().err
    assert not (tmp_path / "site").exists()


def test_the_command_checks_a_report_before_it_builds(tmp_path: Path) -> None:
    value = json.loads((GOLDEN / "slower.json").read_text())
    value["cases"][0]["ratio"] = "1.0"
    path = tmp_path / "report.json"
    path.write_text(json.dumps(value))
    good = CliRunner().invoke(site, ["--dry-run", "--report", str(GOLDEN / "slower.json")])
    assert good.exit_code == 0, good.output
    refused = CliRunner().invoke(site, ["--out", str(tmp_path / "site"), "--report", str(path)])
    assert isinstance(refused.exception, ReportError)
    assert "cases[0].ratio" in str(refused.exception)
    assert not (tmp_path / "site").exists()


def test_the_cases_are_there_as_csv() -> None:
    report = pull_request.read(GOLDEN / "slower.json")
    made = made_site.files_of(
        pull_request.VIEW, dataclasses.replace(made_site.site_of(synthetic.history(1).iloc[:0]), reports=(report,))
    )
    rows = list(csv.DictReader(io.StringIO(made["pull_request.csv"].decode())))
    assert [row["case"] for row in rows] == [case["case"] for case in report["cases"]]
    assert rows[0]["machine"] == "h200-1a2b3c4d"


def test_without_a_report_there_is_no_page() -> None:
    bare = made_site.site_of(synthetic.history(1).iloc[:0])
    assert not pull_request.VIEW.shown(bare)
