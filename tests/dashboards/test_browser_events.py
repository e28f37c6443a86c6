"""From an alarm to its commit in headless Chromium: the front page, the events, the history chart, keys and palette."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ci.history.exact import CodePoint, CodeRecord
from dashboards.sources import SiteHistory
from dashboards.views import pull_request
from tests.dashboards import chromium, made_history, made_site, synthetic
from tests.dashboards.made_history import H200, MI300X
from tests.dashboards.synthetic import TEXTS
from tests.dashboards.test_events import GOLDEN, hostile_events

REPO = "https://github.com/example/kernels"
CASE = f"machine={MI300X}&case=llm_up_m4096&backend=triton"


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return synthetic.lively(60)


@pytest.fixture(scope="module")
def order(frame: pd.DataFrame) -> list[tuple[str, int]]:
    return made_history.order(frame)


def compiled(order: list[tuple[str, int]]) -> list[CodeRecord]:
    """The machine code of four commits: two that were timed, and one before and one between that were not."""
    vgpr = CodePoint("gemm", "vgpr", "triton", "llm_up_m4096", "gfx942")
    lds = vgpr._replace(series="lds_bytes")
    dates = [order[0][1] - 60_000, order[10][1], order[20][1] + 60_000, order[40][1]]
    hashes = ["a" * 40, order[10][0], "b" * 40, order[40][0]]
    values = [128.0, 128.0, 250.0, 256.0]
    rows = zip(hashes, dates, values, strict=True)
    return [CodeRecord(name, date, "triton3.8.0", {vgpr: value, lds: 65536.0}) for name, date, value in rows]


@pytest.fixture(scope="module")
def site(frame: pd.DataFrame, order: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory) -> str:
    known = made_history.lively(frame)
    past = SiteHistory(known.events, known.steps, compiled(order))
    reports = tuple(pull_request.read(GOLDEN / f"{name}.json") for name in ("slower", "hostile"))
    folder = tmp_path_factory.mktemp("site") / "site"
    return made_site.build_frame(frame, folder, REPO, past=past, reports=reports).as_uri()


def hash_of(page: chromium.Page) -> dict[str, str]:
    found: dict[str, str] = page.run("Ridgeline.state()")
    return found


# ---- the verdict ----------------------------------------------------------------------------------------------------


def test_from_an_alarm_to_the_commit_by_keys(page: chromium.Page, site: str, order: list[tuple[str, int]]) -> None:
    page.open(f"{site}/index.html")
    assert page.texts("h1")[0].startswith("3 regressions open on main")
    assert "2 without an owner" in page.texts("h1")[0]
    page.key("j")
    page.key("j")
    page.key("Enter")
    page.wait("document.querySelector('.event-panel')")
    panel = page.texts(".event-panel")[0]
    bad, good = order[40][0], order[39][0]
    for part in ("8.1 % slower", bad[:8], "Commit 40: tiles of 256", "A. Author", "#80", good[:8], "2 commits between"):
        assert part in panel
    assert f"ridgeline ab {good[:8]} {bad[:8]} --kernel gemm --case llm_down_m64 --backend triton" in panel
    assert "vgpr 128 → 256" in panel
    for part in (
        "Why: gemm/triton/llm_up_m4096",
        "explains all",
        "98 %",
        "−0.05 to +0.09 %",
        "spilled: 0 → 12",
        "6 trials",
    ):
        assert part in panel
    links = page.run("[...document.querySelectorAll('.event-panel a')].map(a => a.href)")
    assert f"{REPO}/commit/{bad}" in links
    assert f"{REPO}/compare/{good}...{bad}" in links
    assert f"{REPO}/pull/80" in links
    assert page.run("document.activeElement.closest('tr').dataset.event") == "gemm-40", "the focus stays on the row"
    page.tab.go_back()
    page.wait("!document.querySelector('.event-panel')")
    page.tab.go_forward()
    page.wait("document.querySelector('.event-panel')")


def test_the_front_page_sorts_and_folds_in_the_address(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/index.html")
    rows = ".events .event-row th button"
    assert page.texts(rows) == ["all_gather", "gemm", "rms_norm"], "the largest first"
    assert "7 more" not in page.texts(".events th .sub")[0]
    assert "w8_1024k and 6 more shapes" in page.texts(".events th .sub")[0]
    page.run("[...document.querySelectorAll('.events thead button')].find(b => b.innerText === 'since').click()")
    assert hash_of(page)["by"] == "since"
    assert page.texts(rows) == ["rms_norm", "gemm", "all_gather"]
    for fold in ("improvements", "closed"):
        page.run(f"document.querySelector('#fold-{fold} summary').click()")
        page.wait(f"document.querySelector('#fold-{fold} .event-row')")
    assert "1 fixed, 1 accepted" in page.texts("#fold-closed summary")[0]
    page.open(f"{site}/index.html{page.run('location.hash')}")
    assert "9.0 % faster" in page.texts("#fold-improvements .event-row")[0]
    assert page.texts("#events > div .event-row th button")[:3] == ["rms_norm", "gemm", "all_gather"]
    assert "B. Owner" in page.texts("#events .event-row")[2]


def test_when_nothing_is_open_the_page_says_what_was_looked_at(page: chromium.Page, tmp_path: Path) -> None:
    frame = synthetic.with_times([1e-3] * 3, [1e-3] * 3)
    page.open(f"{made_site.build_frame(frame, tmp_path / 'site').as_uri()}/index.html")
    assert page.texts("h1") == ["No regression is open on main"]
    newest = frame.sort_values("date")["commit"].iloc[-1][:8]
    told = f"2 series with 6 points of 3 commits on 1 machine; newest commit {newest} of 2026-01-"
    assert told in page.texts(".looked")[0]
    assert page.texts(".fold") == []


def test_the_days_since_are_the_readers_own(page: chromium.Page, site: str, order: list[tuple[str, int]]) -> None:
    page.open(f"{site}/index.html")
    shown = page.texts(".event-row td[data-label=since]")[1]
    days = page.run(f"Math.floor((Date.now() - {order[40][1]}) / 86400000)")
    assert shown.split()[:2] == [str(days), "days"]


def test_all_events_are_filtered_and_named_by_the_address(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/events.html")
    assert page.texts("#shown") == ["8 of 8 events"]
    page.run("[...document.querySelectorAll('#event-choices button')].find(b => b.innerText === 'machine').click()")
    assert page.texts(".event-row th button") == ["gemm, softmax"]
    page.tab.go_back()
    page.wait("document.querySelector('#shown').textContent.startsWith('8 of')")
    page.key("/")
    page.tab.keyboard.type("commit 33:")
    assert page.texts(".event-row th button") == ["all_gather"]
    page.open(f"{site}/events.html#event=nobody")
    assert page.texts("#unknown-event") == ["There is no event “nobody” in these records."]


# ---- the history ----------------------------------------------------------------------------------------------------


def test_a_step_is_drawn_and_a_click_tells_its_event(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/kernels/gemm.html#{CASE}&code=0")
    chips = page.texts(".step-chips button")
    steps = ["▲ triton 6.0 % slower", "▲ blas 5.0 % slower", "▲ triton 8.1 % slower"]
    assert [chip.split(" since")[0] for chip in chips] == steps
    assert page.run("document.querySelectorAll('.detail .level').length") == 4 + 3, "a new definition too"
    page.tab.locator(".detail [data-step='2']").click()
    page.wait("document.querySelector('.event-panel')")
    assert hash_of(page)["event"] == "gemm-40"
    assert "--case llm_up_m4096" in page.texts(".event-panel")[0], "the commands are about the case that is looked at"
    page.open(f"{site}/kernels/gemm.html{page.run('location.hash')}")
    assert page.run("document.querySelector('.step.chosen').dataset.step") == "2"
    page.run("document.querySelector('.event-panel .close').click()")
    assert "event" not in hash_of(page)


def test_the_legend_is_kept_in_the_address(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/kernels/gemm.html#{CASE}")
    lines = "[...document.querySelectorAll('.detail .line')].map(line => line.dataset.name)"
    assert page.run(lines) == ["blas", "gluon", "triton"]
    page.run("document.querySelectorAll('.detail .legend button')[1].click()")
    assert hash_of(page)["hide"] == "gluon"
    page.open(f"{site}/kernels/gemm.html{page.run('location.hash')}")
    assert page.run(lines) == ["blas", "triton"]


def test_a_case_stands_at_the_commits_where_it_was_measured(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/kernels/gemm.html#{CASE}")
    assert "all 60 commits" in page.texts(".detail .controls")[0]
    assert page.run("document.querySelector('.detail [data-lane=vgpr] .now').textContent") == "256", "compiled before"
    page.run("document.querySelector('.detail .chart').focus()")
    for key in ("Home", "End"):
        page.key(key)
        assert "this case was not measured here" not in page.texts(".detail .tip")[0]
    page.run("[...document.querySelectorAll('.detail .controls button')].find(b => b.innerText === 'all 62').click()")
    assert hash_of(page)["commits"] == "all"
    assert "all 62 commits" in page.texts(".detail .controls")[0], "two were compiled only"


def test_the_machine_code_stands_below_on_the_same_axis(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/kernels/gemm.html#{CASE}&commits=all")
    lane = ".detail [data-lane=vgpr]"
    assert page.run(f"document.querySelector('{lane} .now').textContent") == "256"
    assert len(page.texts(f"{lane} circle")) == 2, "250 and 256 are changes"
    assert "all 62 commits" in page.texts(".detail .controls")[0], "two were compiled only"
    place = 'Number(document.querySelector("{}").getAttribute("cx"))'
    step = page.run(place.format(".detail [data-step='2'] .target"))
    assert page.run(place.format(f"{lane} circle:last-of-type")) == pytest.approx(step, abs=0.1), "the same commit"
    path = page.run("document.querySelector('.detail [data-name=blas] .stroke').getAttribute('d')")
    assert path.count("M") == 2, "commits that were only compiled do not break a line"
    page.run("document.querySelector('.detail .chart').focus()")
    page.key("Home")
    assert "this case was not measured here" in page.texts(".detail .tip")[0]
    assert "vgpr 128" in page.texts(".detail .tip")[0]
    assert "lds bytes 65,536 B" in page.run("document.querySelector('.constant').textContent")
    page.run("[...document.querySelectorAll('.detail .controls button')].find(b => b.innerText === 'no code').click()")
    assert hash_of(page)["code"] == "0"
    assert page.run("document.querySelector('.detail .lane')") is None
    assert "all 60 commits" in page.texts(".detail .controls")[0]


def test_lines_that_coincide_are_all_seen(page: chromium.Page, tmp_path: Path) -> None:
    frame = synthetic.history(12, synthetic.CASES[:1], machines=[MI300X])
    first = frame["backend"] == "triton"
    for backend in ("gluon", "blas"):
        for column in ("seconds", "seconds_low", "seconds_high"):
            frame.loc[frame["backend"] == backend, column] = frame.loc[first, column].to_numpy()
    page.open(f"{made_site.build_frame(frame, tmp_path / 'site').as_uri()}/kernels/gemm.html")
    strokes: list[list[str]] = page.run(
        "[...document.querySelectorAll('.detail .stroke')].map(p => "
        "[p.getAttribute('d'), p.getAttribute('stroke-dasharray'), p.getAttribute('stroke-dashoffset') || '0'])"
    )
    assert len({d for d, _, _ in strokes}) == 1
    assert {dash for _, dash, _ in strokes} == {"7 14"}
    assert sorted(int(offset) for _, _, offset in strokes) == [-14, -7, 0], "each has a third of the way"
    radius = "line => line.querySelector('circle').getAttribute('r')"
    radii = page.run(f"[...document.querySelectorAll('.detail .line')].map({radius})")
    assert sorted(map(float, radii), reverse=True) == list(map(float, radii))
    assert len(set(radii)) == 3


def test_a_chart_needs_times_and_a_legend_needs_a_line(page: chromium.Page, tmp_path: Path) -> None:
    cases = [synthetic.gather(1 << p, world) for world in (2, 4) for p in (16, 20, 24)]
    frame = synthetic.history(3, cases, machines=[H200])
    frame = synthetic.spoil(frame, frame["world"] == 4, "skipped", "world 4 needs 4 GPUs; this machine has 2")
    frame = synthetic.spoil(frame, frame["backend"] == "gluon", "unsupported", "no gluon here")
    page.open(f"{made_site.build_frame(frame, tmp_path / 'site').as_uri()}/kernels/all_gather.html")
    assert [text.strip() for text in page.texts(".detail .legend button")] == ["rccl baseline", "triton"]
    assert page.texts(".detail .not-here li") == ["unsupported gluon no gluon here"]


# ---- everywhere -----------------------------------------------------------------------------------------------------


def test_the_palette_goes_to_kernels_cases_machines_pages_and_events(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/pull_request.html")
    wanted = {"event 40:": "event=gemm-40", "case w8_1024k": "case=w8_1024k", "kernel softmax": "softmax.html"}
    for typed, address in wanted.items():
        page.key("Control+k")
        page.wait("document.querySelector('.palette[open] li')")
        page.tab.keyboard.type(typed)
        page.wait(f"(document.querySelector('.palette li')?.textContent || '').startsWith('{typed.split()[0]}')")
        page.key("Enter")
        page.tab.wait_for_url(lambda url, part=address: part in url)
        page.wait(chromium.SETTLED)
    page.key("Control+k")
    page.tab.keyboard.type("zzz")
    assert page.texts(".palette p") == ["nothing matches"]
    page.key("Escape")
    assert page.run("document.querySelector('dialog[open]')") is None


def test_help_and_rows_by_keys(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/kernels/gemm.html#{CASE}")
    page.key("?")
    assert "next and previous row" in page.texts("dialog[open]")[0]
    page.key("Escape")
    page.run("document.querySelector('.opened .opener').focus()")
    page.key("k")
    assert page.run("document.activeElement.matches('.opener')")
    before = page.run("document.activeElement.closest('tr').rowIndex")
    page.key("j")
    assert page.run("document.activeElement.closest('tr').rowIndex") > before


def test_back_returns_to_the_case_and_the_order_before(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/kernels/gemm.html#{CASE}")
    page.run("[...document.querySelectorAll('#cases thead button')].find(b => b.innerText === 'time').click()")
    page.run("[...document.querySelectorAll('.opener')].find(b => b.innerText === 'square_8192').click()")
    assert (hash_of(page)["case"], hash_of(page)["by"]) == ("square_8192", "-time")
    page.tab.go_back()
    page.wait("document.querySelector('tr.opened .opener').innerText === 'llm_up_m4096'")
    page.tab.go_back()
    page.wait("!document.querySelector('th[aria-sort=descending]')")


def test_a_pull_request_shows_each_case_with_its_interval(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/pull_request.html")
    report = pull_request.read(GOLDEN / "slower.json")
    assert page.texts("h1")[0] == f"SLOWER {report['why']}"
    rows = page.texts(".report:first-child [data-table=report] tbody tr")
    assert len(rows) == sum(case["verdict"] != "SAME" for case in report["cases"])
    assert rows[0].split()[:2] == ["SLOWER", "up_m1024"]
    assert "+3.1 %" in rows[0]
    bars = "[...document.querySelectorAll('.report:first-child .interval')].map(b => b.getAttribute('class'))"
    assert page.run(bars)[0] == "interval slower"
    page.run("document.querySelector('#all').click()")
    assert len(page.texts(".report:first-child [data-table=report] tbody tr")) == len(report["cases"])
    assert hash_of(page)["all"] == "1"
    harmless = "window.pwned === undefined && document.querySelector('img') === null"
    assert page.run(harmless), "the hostile report beside it"


def test_print_repeats_the_heads_of_columns(page: chromium.Page, site: str) -> None:
    page.size(1400, 1000, "dark", "print")
    page.open(f"{site}/index.html")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "on paper it is light"
    heads: Any = page.run("[...document.querySelectorAll('thead')].map(e => getComputedStyle(e).display)")
    assert set(heads) == {"table-header-group"}
    gone = "['nav', '.quick', '.tools'].map(s => getComputedStyle(document.querySelector(s)).display)"
    assert set(page.run(gone)) == {"none"}


def test_hostile_texts_stay_texts_everywhere(page: chromium.Page, frame: pd.DataFrame, tmp_path: Path) -> None:
    names = pd.Series(frame["case"].unique())
    renamed = frame.assign(case=frame["case"].map(dict(zip(names, TEXTS, strict=False))), kernel="gemm" + TEXTS[1])
    known = made_history.history(*hostile_events(frame))
    site = made_site.build_frame(renamed, tmp_path / "site", REPO, past=known, problems=TEXTS)
    kernel = next((site / "kernels").glob("*.html"))
    every = "&".join(f"open={name}" for name in ("improvements",))
    for address in (site / "index.html", site / "events.html", kernel):
        for n in (0, 4, 17):
            page.open(f"{address.as_uri()}#event={n:010x}&{every}")
        page.key("Control+k")
        page.wait("document.querySelector('.palette[open] li')")
        assert page.run("window.pwned === undefined && document.querySelector('img, main script') === null")
        assert page.run("[...document.querySelectorAll('a')].every(a => /^(file|https?|data):/.test(a.protocol + ':'))")
        assert page.run("document.documentElement.scrollWidth") <= 1400
    page.open(kernel.as_uri() + "#case=%3Cimg src=x onerror=window.pwned=1%3E&machine=%3Cimg%3E")
    assert page.run("window.pwned === undefined && document.querySelector('img') === null")
    page.open(f"{site.as_uri()}/events.html")
    shown = page.run("document.querySelector('#event-list').textContent")
    for text in ("<img src=x onerror=window.pwned=1>", "{{7*7}}{% raw %}", "__proto__", "漢字"):
        assert text in shown
    assert len(page.texts(".event-row")) == len(TEXTS)
