"""Recorded sweeps on the site: the newest of each operator, its points, winners and problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ci.records import store
from dashboards.figures import __main__ as command
from dashboards.views import SiteInput, studies
from tests.ci.made_trials import BASE, HEAD, tree, write
from tests.ci.sweeps.made_sweeps import line
from tests.dashboards import chromium, made_site, synthetic
from tests.dashboards.shown import received

POINTS = [({"num_warps": 8}, 0.9), ({"num_warps": 2}, 1.3), ({"num_warps": 16}, "crash")]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two commits; the newer one has two cases, of which nothing is faster in the second."""
    older = line([({"num_warps": 1}, 0.5)], trees={"head": tree(BASE)}, rounds=8)
    newer = [line(POINTS, rung=rung, trees={"head": tree(HEAD)}) for rung in (0, 1)]
    second = line([({"num_warps": 8}, 1.1)], case="m64", batch=1, trees={"head": tree(HEAD)})
    old = {**older, "started_at": "2020" + older["started_at"][4:]}
    store.record([write(tmp_path / "t.jsonl", old, *newer, second)], tmp_path / "results")
    return tmp_path / "results"


def told(results: Path) -> dict[str, Any]:
    site = SiteInput(synthetic.history(1).iloc[:0], results_dir=results)
    return {path: received(value) for path, value in studies.SWEEPS.data(site)}


def test_the_newest_sweep_of_an_operator_is_listed_with_its_winners(results: Path) -> None:
    assert len(list(results.glob("sweeps/*/*.jsonl.gz"))) == 2
    data = told(results)
    (listed,) = data["views/sweeps"]["sweeps"]
    assert (listed["commit"], listed["cases"], listed["points"], listed["measured"]) == (HEAD, 2, 6, 5)
    assert listed["faster"] == 1
    found = data[listed["path"]]
    first, second = found["winners"]
    assert (first["case"], first["knobs"], first["beats"]) == ("m16", "num_warps=8", True)
    assert first["ratio"] == pytest.approx(0.9, rel=0.01)
    assert (second["case"], second["is_anchor"], second["beats"]) == ("m64", True, False)


def test_its_points_are_drawn_by_case_and_failures_are_counted(results: Path) -> None:
    data = told(results)
    found = data[data["views/sweeps"]["sweeps"][0]["path"]]
    picture = found["figure"]["picture"]
    assert [panel["title"] for panel in picture["panels"]] == ["m16", "m64"]
    assert picture["panels"][0]["said"].startswith("fastest: triton num_warps=8\n")
    assert "not measured: 1 crash" in picture["notes"]
    crash = next(row for row in found["points"] if row["status"] == "crash")
    assert (crash["ratio"], crash["us"], crash["knobs"]) == (None, None, "num_warps=16")


def test_a_damaged_file_is_said_and_a_site_without_sweeps_has_no_page(results: Path, tmp_path: Path) -> None:
    bad = results / "sweeps" / "m" / "0000-env-softmax.jsonl.gz"
    bad.parent.mkdir()
    bad.write_bytes(b"no gzip")
    data = told(results)["views/sweeps"]
    assert len(data["sweeps"]) == 1
    (problem,) = data["problems"]
    assert "sweeps/m/0000-env-softmax.jsonl.gz" in problem
    files = made_site.site_files(synthetic.history(1, synthetic.CASES[:1]), results_dir=tmp_path / "none")
    assert "sweeps.html" not in files


def test_a_sweep_is_drawn_for_paper_and_what_is_missing_is_said(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["sweep", "--results", str(results), "--out", str(tmp_path / "s.svg")]
    assert command.main([*asked, "--kernel", "gemm"]) == 0
    assert (tmp_path / "s.svg").read_bytes().startswith(b"<?xml")
    assert command.main([*asked, "--kernel", "softmax"]) == 3
    assert command.main([*asked, "--kernel", "gemm", "--case", "m5"]) == 3
    assert command.main(asked) == 3
    assert command.main([*asked, "--kernel", "gemm", "--machine", "m"]) == 3
    said = capsys.readouterr().err.splitlines()
    how = "`ridgeline records add --help` says how its lines are taken"
    assert said[0] == f"error: no sweep of softmax is recorded; {how}"
    assert said[1] == "error: the sweep has no case 'm5'; it has m16, m64"
    assert said[2].endswith("needs --kernel")
    assert "no sweep of gemm on m is recorded" in said[3]


def test_the_page_shows_the_points_of_a_case(page: chromium.Page, results: Path, tmp_path: Path) -> None:
    frame = synthetic.history(1, synthetic.CASES[:1])
    site = made_site.build_frame(frame, tmp_path / "site", results_dir=results)
    page.open(f"{site.as_uri()}/sweeps.html")
    assert page.run("document.querySelectorAll('.plot').length") == 2
    page.tab.locator("main label:has-text('case') select").select_option("m16")
    page.wait("location.hash.includes('case=m16') && !document.querySelector('[data-busy]')")
    rows = page.run("[...document.querySelectorAll('[data-table=sweep-gemm] tbody tr')].map(row => row.innerText)")
    assert len(rows) == 4
    assert "num_warps=8" in rows[0]
    page.tab.locator(".plot").first.focus()
    page.key("ArrowRight")
    assert "num_warps=8" in page.run("document.querySelector('.plot-tip').innerText")
    (link,) = page.run("[...document.querySelectorAll('.beside a')].map(a => a.href).filter(a => a.endsWith('csv'))")
    assert len(pd.read_csv(link)) == 6
