"""The page of sustained calls: rows of both regimes, and only where there are records of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.records import store
from dashboards import build
from dashboards.views import sustained
from tests.ci import made_trials
from tests.ci.records.test_sustained import sustained as sustained_trial
from tests.dashboards import chromium
from tests.dashboards.test_build import received


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
    assert list(sustained.VIEW.data(build.SiteInput(build.pd.DataFrame()))) == [("views/sustained", {"rows": []})]


def test_the_page_shows_both_regimes_and_filters(site: Path, page: chromium.Page) -> None:
    page.open(f"{site.as_uri()}/sustained.html")
    shown = page.run("[...document.querySelectorAll('.grid tbody tr')].map(row => row.innerText)")
    assert len(shown) == 2
    ours = next(row for row in shown if "triton" in row)
    assert [text for text in ("1.000 ms", "1.200 ms", "0.5000", "m16", "gemm") if text not in ours] == [], ours
    page.open(f"{site.as_uri()}/sustained.html#q=triton")
    assert page.run("document.getElementById('shown').textContent") == "1 of 2 rows"
    assert page.errors == []
