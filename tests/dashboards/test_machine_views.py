"""The pages of machines, scaling and checks: their data from folders of records, whatever the names in them."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from ci.history import kept
from ci.history.kept import CanaryCase, CanaryRun
from ci.records import store
from dashboards import build
from dashboards.lanes import tidy, without_ranks
from dashboards.views import SiteInput, View, machines
from tests.ci import made_trials
from tests.ci.records.test_sustained import sustained as sustained_trial
from tests.dashboards import chromium, made_site, synthetic
from tests.dashboards.test_build import received

HOSTILE = "</script><b>\u202e'\"&"
MACHINE = "h200x2-1a2b3c4d"


def check(at: str = "2026-11-21T08:10:30+00:00", case: str = "m16", **arms: object) -> dict[str, object]:
    return {
        "format": "ridgeline-check",
        "version": 1,
        "at": at,
        "kernel": "gemm",
        "world": 1,
        "dtype": "fp16",
        "case": case,
        "arms": arms or {"triton": {"status": "ok", "error": {"norm": 1e-4}}},
        "commit": "c" * 40,
        "holds_for": {"machine": MACHINE},
    }


def folder(path: Path, *lines: dict[str, object]) -> Path:
    (path / "checks").mkdir()
    packed = gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode())
    (path / "checks" / "h200.jsonl.gz").write_bytes(packed)
    return path


def data(view: View, site: SiteInput) -> dict[str, object]:
    """Every file of a view; as the build writes it, it must be sound JSON."""
    found = made_site.data_of(view, site)
    for value in found.values():
        assert json.loads(build.script_json(value)) == json.loads(json.dumps(value))
    return found


def site_of(path: Path, frame: pd.DataFrame | None = None) -> SiteInput:
    return made_site.site_of(tidy(frame) if frame is not None else synthetic.history(1).iloc[:0], results=path)


# ---- checks ----------------------------------------------------------------------------------------------------------


def test_the_newest_check_of_a_case_counts(tmp_path: Path) -> None:
    wrong = {"status": "wrong", "why": HOSTILE}
    first = check(triton=wrong, blas={"status": "unsupported", "why": "no"})
    later = check("2026-11-22T08:00:00+00:00", triton={"status": "ok", "error": {"norm": 2e-4}})
    other = check(case="m64", triton={"status": "ok", "error": {"norm": 5e-4}})
    found, problems = kept.case_checks(folder(tmp_path, later, first, other))
    blas, triton = kept.verified(found)
    assert problems == []
    assert (blas.counts, triton.counts, triton.worst) == ({"unsupported": 1}, {"ok": 2}, 5e-4)
    assert (triton.first[:10], triton.last[:10], triton.failures) == ("2026-11-21", "2026-11-22", ())


def test_a_failure_is_told_with_its_reason(tmp_path: Path) -> None:
    told = data(machines.CHECKS, site_of(folder(tmp_path, check(triton={"status": "wrong", "why": HOSTILE}))))
    assert told["views/checks"]["failures"][0]["why"] == HOSTILE
    (csv,) = (content for path, content in machines.CHECKS.make(site_of(tmp_path)) if path.endswith("csv"))
    assert csv.decode().splitlines()[0].endswith("ok,wrong,crash,hang,error,unsupported,skipped")


def test_what_is_no_check_is_named_and_left_out(tmp_path: Path) -> None:
    folder(tmp_path, check(), {"format": "else"}, {**check(), "arms": 3})
    (tmp_path / "checks" / "torn.jsonl.gz").write_bytes(gzip.compress(b"x" * 999)[:20])
    found, problems = kept.case_checks(tmp_path)
    assert (len(found), len(problems)) == (1, 3)
    assert len(data(machines.CHECKS, site_of(tmp_path))["views/checks"]["problems"]) == 3
    assert kept.case_checks(tmp_path / "none") == ([], [])


# ---- machines --------------------------------------------------------------------------------------------------------


def test_the_page_of_machines_has_notes_answers_and_checks(tmp_path: Path) -> None:
    folder(tmp_path, check())
    home = tmp_path / MACHINE
    home.mkdir()
    reading = {"sm_clock_mhz": 1980, "power_w": 700, "temperature_c": 60, "throttle": "none"}
    state = {"state": {"during": [{**reading, "others": [{**reading, "sm_clock_mhz": 1500}]}] * 3}}
    lines = [{**made_trials.trial(number=number), **state} for number in range(4)]
    made_trials.write(home / "aaaaaaaa-env.notes.jsonl", *lines)
    run = CanaryRun("1", "2026-11-22T02:00:00+00:00", "elsewhere", "1 × MI300X", "a" * 40, 0.01, 0.003, ())
    kept.CANARY.add(
        tmp_path / "canary/elsewhere.jsonl",
        [dataclasses.replace(run, cases=(CanaryCase(HOSTILE, "SLOWER", 1.01, 1.0, 1.02, 4),))],
    )
    told = data(machines.VIEW, site_of(tmp_path))
    listed = {one["machine"]: one for one in told["views/machines"]["machines"]}
    assert listed["elsewhere"]["gate"] == [{"planted": 0.01, "runs": 1, "counts": {"found": 1}, "worst": 0.0}]
    assert listed[MACHINE]["standing"][0].startswith("GPU 1: clock at work 1,500 MHz")
    one = told[listed[MACHINE]["path"]]
    assert [device[0] for device in one["sessions"][0][4]] == [1980.0, 1500.0]
    assert (one["devices"], one["verified"][0]["counts"]) == (2, {"ok": 1})
    assert told[listed["elsewhere"]["path"]]["canary"][0]["case"] == HOSTILE


def test_a_bare_frame_lists_its_machines_without_health() -> None:
    frame = synthetic.history(1)
    told = data(machines.VIEW, made_site.site_of(tidy(frame)))
    assert {one["machine"] for one in told["views/machines"]["machines"]} == set(frame["machine"])


# ---- scaling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "world", "shape"),
    [("w4_fp16_64MB", 4, "fp16_64MB"), ("n8_m4_w2", 2, "n8_m4"), ("w2", 2, "w2"), ("w4_x", 2, "w4_x")],
)
def test_a_case_without_its_ranks(case: str, world: int, shape: str) -> None:
    assert without_ranks(case, world) == shape


def test_points_of_one_product_over_ranks(tmp_path: Path) -> None:
    cases = [synthetic.gather(size, world=world) for world in (2, 8) for size in (1 << 20, 1 << 24)]
    frame = synthetic.history(2, cases, machines=["mi300x-8-0f3a9c1e"])
    told = data(machines.SCALING, site_of(tmp_path, frame))
    (product,) = told["views/scaling"]["products"]
    points = told[product["path"]]["points"]
    triton = [p for p in points if p["backend"] == "triton"]
    assert [(p["shape"], p["world"]) for p in triton] == [("1024k", 2), ("1024k", 8), ("16384k", 2), ("16384k", 8)]
    row = frame[(frame["case"] == "w8_16384k") & (frame["backend"] == "triton")].iloc[-1]
    assert (triton[-1]["per_rank"], triton[-1]["rate"]) == (row["payload_bytes"] / 8, "busbw")
    assert triton[-1]["value"] == pytest.approx(row["busbw"], rel=1e-5)


def test_curves_are_read_with_what_runs_now(tmp_path: Path) -> None:
    assert data(machines.SCALING, site_of(tmp_path))["views/scaling"] == {"products": [], "curves": []}
    points = kept.curve_points(Path("results"))[0]
    chosen = {(points[0].machine, points[0].kernel, points[0].case, "triton"): 128}
    (curve,) = machines.curves_data(points, chosen)
    triton = next(one for one in curve["backends"] if one["name"] == "triton")
    assert ([cus for cus, _, _ in triton["points"]], triton["chosen"]) == ([4, 8, 16, 32, 64, 128], 128)


# The page of sustained calls: rows of both regimes, and only where there are records of it.


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of three spaced and three sustained trials."""
    lines = [made_trials.trial(number=n) for n in range(3)]
    lines += [sustained_trial(n, joules=[0.5, 0.51, 0.49] * 2) for n in range(3)]
    store.record([made_trials.write(tmp_path / "t.jsonl", *lines)], tmp_path / "results")
    return build.build(tmp_path / "results", tmp_path / "site")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_row_has_both_regimes_and_its_joules(site: Path) -> None:
    rows = {row["backend"]: row for row in received(files_of(site), "views/sustained")["rows"]}
    ours, library = rows["triton"], rows["blas"]
    assert (ours["kernel"], ours["case"], ours["baseline"]) == ("gemm", "m16", False)
    assert (ours["spaced_us"], ours["sustained_us"]) == (1000.0, 1200.0)
    assert (ours["spaced_ratio"], ours["sustained_ratio"]) == (0.5, 1.0)
    assert ours["joules_low"] < ours["joules"] == 0.5 < ours["joules_high"]
    assert library["baseline"]
    assert library["sustained_ratio"] is None
    assert (site / "data/views/sustained.csv").read_text().startswith("machine,kernel,case,backend,baseline,commit")


def test_times_of_the_two_regimes_are_in_no_series_together(site: Path) -> None:
    """The overview and the page of the kernel are of spaced times alone."""
    files = files_of(site)
    [path] = [name for name in files if name.startswith("data/") and name.endswith("overview.js")]
    rows = received(files, path[len("data/") : -len(".js")])["rows"]
    assert [row["us"] for row in rows if row["backend"] == "triton"] == [1000.0]


def test_without_sustained_records_there_is_no_such_page(tmp_path: Path) -> None:
    file = made_trials.write(tmp_path / "t.jsonl", made_trials.trial())
    store.record([file], tmp_path / "results")
    assert not (build.build(tmp_path / "results", tmp_path / "site") / "sustained.html").exists()
    assert list(machines.SUSTAINED.make(build.SiteInput(made_site.NOWHERE))) == [("views/sustained", {"rows": []})]


def test_the_page_shows_both_regimes_and_filters(site: Path, page: chromium.Page) -> None:
    page.open(f"{site.as_uri()}/sustained.html")
    shown = page.run("[...document.querySelectorAll('.grid tbody tr')].map(row => row.innerText)")
    assert len(shown) == 2
    ours = next(row for row in shown if "triton" in row)
    assert [text for text in ("1.000 ms", "1.200 ms", "0.5000", "m16", "gemm") if text not in ours] == [], ours
    page.open(f"{site.as_uri()}/sustained.html#q=triton")
    assert page.run("document.getElementById('shown').textContent") == "1 of 2 rows"
    assert page.errors == []
