"""The views in headless Chromium: compare, backends, shapes, roofline."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest

from ci.history import kept
from ci.history.kept import CanaryCase, CanaryRun
from ci.records.ledger import Explanation, RecordedCause, TriedCause, record_causes
from dashboards.lanes import together
from tests.ci import made_trials
from tests.dashboards import chromium, made_site, synthetic
from tests.dashboards.synthetic import TEXTS
from tests.dashboards.test_build import HOSTILE
from tests.dashboards.test_machine_views import check, folder

MI300X, H200 = "mi300x-8-0f3a9c1e", "h200x2-1a2b3c4d"
PAGES = ("compare", "backends", "shapes", "roofline")
HERE = f"#machine={MI300X}"
NAMES = [text for text in TEXTS if "\ud800" not in text]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return synthetic.lively(12)


@pytest.fixture(scope="module")
def site(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> str:
    return made_site.build_frame(
        frame, tmp_path_factory.mktemp("site") / "site", "https://github.com/example/k"
    ).as_uri()


def choose(page: chromium.Page, label: str, value: str) -> None:
    """Choose in the select that a label names, as a person would."""
    page.tab.locator(f"main label:has-text('{label}') select").first.select_option(value)
    page.wait("!document.querySelector('[data-busy]')")


def tip(page: chromium.Page, plot: int = 0) -> str:
    """The box that the first arrow key shows."""
    page.tab.locator(".plot").nth(plot).focus()
    page.key("ArrowRight")
    return page.texts(".plot-tip")[0]


@pytest.mark.parametrize("name", PAGES)
def test_a_view_draws_and_fits_on_screen_phone_and_paper(page: chromium.Page, site: str, name: str) -> None:
    page.open(f"{site}/{name}.html{HERE}")
    assert len(page.texts(".grid tbody tr")) > 3
    assert page.texts("nav [aria-current]") == [name.capitalize()]
    picture = "document.querySelector('.plot canvas').toDataURL()"
    for width, scheme, media in ((1400, "light", ""), (390, "dark", ""), (1000, "light", "print")):
        page.size(width, 900, scheme, media)
        page.wait(f"{picture} !== window.last")  # drawn anew for each of them
        page.run(f"window.last = {picture}")
        assert page.run("document.documentElement.scrollWidth") <= width, "the page does not scroll sideways"


def test_odd_records_leave_no_view_broken(page: chromium.Page, tmp_path: object) -> None:
    """One commit: nothing that runs, and cases without cost or definition."""
    one = synthetic.history(1, synthetic.CASES[:2])
    failing = synthetic.spoil(one, one["backend"] != "", "crash", "worker ended by signal 11")
    bare = one.assign(flops=np.nan, hbm_bytes=np.nan, link_bytes=np.nan, payload_bytes=np.nan, yardstick="")
    for name, frame in (("failing", failing), ("bare", bare)):
        out = made_site.build_frame(frame, f"{tmp_path}/{name}").as_uri()
        for view in PAGES:
            page.open(f"{out}/{view}.html")
            page.run(chromium.PRINTED)
            assert page.texts("#shown") != []
            assert page.texts("[data-failed]") == []


def test_a_chart_is_used_by_keys_alone(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/roofline.html{HERE}")
    page.key("/")
    assert page.run("document.activeElement.id") == "filter"
    page.tab.locator(".plot").focus()
    page.key("ArrowRight")
    said = page.texts("[aria-live] dl")
    page.key("ArrowRight")
    assert said != page.texts("[aria-live] dl") != []
    page.key("Enter")
    page.tab.wait_for_url("**/kernels/*")
    page.wait(chromium.SETTLED)
    assert f"machine={MI300X}" in page.run("location.hash")


def test_the_roofline_stands_where_the_records_say(page: chromium.Page, site: str, frame: pd.DataFrame) -> None:
    page.open(f"{site}/roofline.html{HERE}&kernel=gemm")
    rows = together(frame[frame["machine"] == MI300X]).set_index(["case", "backend"])
    shown = [text.split("\t") for text in page.texts("[data-table=roofline] tbody tr")]
    assert len(shown) == 6
    for case, _, backend, _, intensity, flops, share, *_ in shown:
        row = rows.loc[case, backend]
        assert float(intensity.replace(",", "")) == pytest.approx(row["flops"] / row["hbm_bytes"], rel=1e-3)
        assert float(flops.split()[0].replace(",", "")) == pytest.approx(row["flops"] / row["seconds"] / 1e12, rel=1e-3)
        assert share == f"{100 * row['peak_share']:.1f} %"


def hostile() -> pd.DataFrame:
    """A kernel of each hostile name, with a case and a backend of that name; pandas itself refuses half letters."""
    cases = [synthetic.gemm(text, 64, 4096, 4096, kernel=text) for text in NAMES]
    frames = [synthetic.history(2, [case], [H200], backends=(case["case"],)) for case in cases]
    frame = pd.concat(frames, ignore_index=True)
    return frame.assign(machine=frame["machine"] + TEXTS[0], env=TEXTS[1], why=TEXTS[2], dtype="fp16")


def test_hostile_names_stay_text_on_every_view(page: chromium.Page, tmp_path: object) -> None:
    page.size(1000, 900)
    out = made_site.build_frame(hostile(), f"{tmp_path}/site").as_uri()
    chosen = [f"shapes.html#kernel={quote(text)}" for text in ("__proto__", TEXTS[0], "x" * 600)]
    for address in ("compare.html#all=1", "backends.html#kernel=*", "roofline.html", "backends.html", *chosen):
        page.open(f"{out}/{address}")
        page.run(chromium.PRINTED)
        assert page.run("window.pwned") is None
        assert page.run("document.querySelectorAll('main img, main script').length") == 0
        assert page.run("document.documentElement.scrollWidth") <= 1000, address
        assert page.texts("[data-failed]") == []
        if address.startswith(("compare", "roofline", "backends.html#")):
            assert len(page.texts(".grid:not(h2 ~ .grid) tbody tr")) >= len(NAMES), address
        if page.run("document.querySelectorAll('.plot').length"):
            tip(page)
        page.run("[...document.querySelectorAll('.grid .controls button')][0].click()")


def test_the_box_at_the_cursor_has_the_records_numbers(page: chromium.Page, site: str, frame: pd.DataFrame) -> None:
    page.open(f"{site}/backends.html{HERE}&kernel=gemm")
    said = tip(page)
    rows = together(frame[frame["machine"] == MI300X])
    case = said.splitlines()[0]
    row = rows[(rows["case"] == case) & (rows["backend"] == "gluon")].iloc[0]
    assert f"{row['tflops']:,.1f} TFLOPS" in said
    assert f"{100 * row['peak_share']:.1f} %" in said
    box = page.run("(r => [r.x + r.width / 2, r.y + 60])(document.querySelector('.plot').getBoundingClientRect())")
    page.key("Escape")
    page.mouse("mouseMoved", *box)
    page.wait("document.querySelector('.plot-tip') && document.querySelector('.plot-tip').innerText.includes('TFLOPS')")


def test_choices_are_in_the_address_and_back_undoes_them(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/shapes.html{HERE}")
    first = page.texts(".grid caption")
    choose(page, "operator", "rms_norm")
    assert "kernel=rms_norm" in page.run("location.hash")
    assert page.texts(".grid caption") == ["speed of rms_norm by shape"] != first
    page.tab.get_by_role("button", name="time", exact=True).first.click()
    page.wait("location.hash.includes('rate=time')")
    page.tab.go_back()
    page.wait("!location.hash.includes('rate=time') && !document.querySelector('[data-busy]')")
    page.tab.go_back()
    page.wait("!location.hash.includes('rms_norm') && !document.querySelector('[data-busy]')")
    assert page.texts(".grid caption") == first


def test_the_map_of_winners_marks_the_best_and_the_unsupported(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/backends.html{HERE}&kernel=*")
    assert page.texts(".grid thead th")[:2] == ["operator", "case"]
    assert all(word.startswith("best") for word in page.texts(".grid td.best"))
    page.open(f"{site}/backends.html{HERE}&kernel=rms_norm")
    assert "wrong" in page.texts(".grid .status")
    assert page.run("document.querySelector('.grid .status').title").startswith("||out - ref||")


def test_a_table_is_sorted_by_its_heads_and_the_address_keeps_it(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/roofline.html{HERE}")
    page.tab.get_by_role("button", name="% of roof").click()
    page.wait("location.hash.includes('sort=-peak_share')")
    shown = [float(text.split()[0]) for text in page.texts(".grid tbody td:nth-child(7)")]
    assert shown == sorted(shown, reverse=True)
    assert page.run("document.querySelector('.grid th[aria-sort]').getAttribute('aria-sort')") == "descending"
    page.open(f"{site}/roofline.html{page.run('location.hash')}")
    assert [float(text.split()[0]) for text in page.texts(".grid tbody td:nth-child(7)")] == shown


def test_comparing_two_commits_tells_what_is_not_comparable(
    page: chromium.Page, site: str, frame: pd.DataFrame
) -> None:
    order = frame["commit"].drop_duplicates().tolist()
    page.open(f"{site}/compare.html{HERE}&from={order[0]}&commit={order[-1]}&all=1&kernel=gemm")
    rows = [text.split("\t") for text in page.texts("[data-table=compare] tbody tr")]
    assert rows, "gemm was defined anew halfway"
    assert {row[3] for row in rows} <= {"not comparable", "only before", "only after"}
    page.open(f"{site}/compare.html{HERE}&from={order[-2]}&commit={order[-1]}&all=1&kernel=gemm")
    assert "not comparable" not in {text.split("\t")[3] for text in page.texts("[data-table=compare] tbody tr")}


def test_comparing_two_commits_shows_why_one_is_slower(
    page: chromium.Page, frame: pd.DataFrame, tmp_path: Path
) -> None:
    order = frame["commit"].drop_duplicates().tolist()
    tried = TriedCause("knob", "num_stages", "3 → 2", "explains all", 0.99, 1.0002, 0.998, 1.002, 3)
    one = Explanation(
        ("gemm/triton/m64",), "gemm/triton/m64", "proven", "knob: proven", (tried,), ("LDS: 1 → 2",), 1, 3
    )
    record_causes(tmp_path / "results", [RecordedCause(MI300X, order[-3], order[-1], one)])
    site = made_site.build_frame(frame, tmp_path / "site", results=tmp_path / "results").as_uri()
    page.open(f"{site}/compare.html{HERE}&from={order[-3]}&commit={order[-1]}")
    (panel,) = page.texts(".why")
    for part in ("Why: gemm/triton/m64", "proven", "knob num_stages", "99 %", "+0.02 %", "LDS: 1 → 2", "3 trials"):
        assert part in panel
    page.open(f"{site}/compare.html{HERE}&from={order[-2]}&commit={order[-1]}")
    assert page.texts(".why") == []


def test_the_change_that_is_shown_is_that_of_the_records(page: chromium.Page, site: str, frame: pd.DataFrame) -> None:
    order = frame["commit"].drop_duplicates().tolist()
    page.open(f"{site}/compare.html{HERE}&from={order[-3]}&commit={order[-1]}&all=1&kernel=all_gather")
    cells = next(text.split("\t") for text in page.texts(".grid tbody tr") if "w8_64k" in text and "triton" in text)
    rows = frame[(frame["machine"] == MI300X) & (frame["case"] == "w8_64k")].set_index(["commit", "backend"])["seconds"]
    before, after = (rows[order[n], "rccl"] / rows[order[n], "triton"] for n in (-3, -1))
    shown = float(cells[4].split("%")[0].replace("−", "-").replace("±", "").replace("+", ""))
    assert shown == pytest.approx(100 * (after / before - 1), abs=0.06)
    sides = page.run("[...document.querySelectorAll('.sides select')].map(s => s.value)")
    page.tab.get_by_role("button", name="swap sides").click()
    page.wait("!document.querySelector('[data-busy]')")
    assert page.run("[...document.querySelectorAll('.sides select')].map(s => s.value)") == [*sides[2:], *sides[:2]]


def test_two_machines_are_compared_by_their_times_alone(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/compare.html{HERE}&from_machine={H200}&all=1")
    assert "Two machines" in page.texts("main")[0]
    assert len(page.texts("[data-table=compare] tbody tr")) > 20


def test_a_comparison_is_copied_as_markdown(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/compare.html{HERE}&all=1")
    page.run("document.addEventListener('copy', () => { window.copied = document.activeElement.value; })")
    page.tab.get_by_role("button", name="Copy as Markdown").first.click()
    lines = page.run("window.copied").splitlines()
    assert lines[0].startswith("**")
    assert MI300X in lines[0]
    assert sum(line.startswith("| case |") for line in lines) == 1
    rows = len(page.texts("[data-table=compare] tbody tr"))
    assert sum(line.startswith("| ") for line in lines) > rows > 10


@pytest.mark.slow
def test_the_numbers_beside_a_page_are_files_that_others_read(site: str, frame: pd.DataFrame) -> None:
    path = f"{site.removeprefix('file://')}/data/{MI300X}/newest"
    table, same = pd.read_csv(f"{path}.csv"), pd.read_json(f"{path}.json")
    assert list(table.columns) == list(same.columns)
    assert len(table) == len(same) == len(together(frame[frame["machine"] == MI300X]))
    np.testing.assert_allclose(table["us"], same["us"])


# The pages of machines, scaling and checks in Chromium: what they show, their addresses, a phone, odd names.


@pytest.fixture(scope="module")
def machines_site(tmp_path_factory: pytest.TempPathFactory) -> str:
    wrong = {"status": "wrong", "why": HOSTILE}
    gather = {**check(triton=wrong), "kernel": "all_gather", "world": 2}
    results = folder(tmp_path_factory.mktemp("records"), check(triton=wrong), gather)
    home = results / H200
    home.mkdir()
    reading = {"sm_clock_mhz": 1980, "power_w": 700, "temperature_c": 60, "throttle": "none"}
    state = {"state": {"during": [{**reading, "others": [{**reading, "sm_clock_mhz": 1500}]}] * 3}}
    made_trials.write(
        home / "aaaaaaaa-env.notes.jsonl", *({**made_trials.trial(number=number), **state} for number in range(4))
    )
    case = CanaryCase(HOSTILE, "SAME", 1.001, 0.999, 1.003, 4)
    kept.add(results, [CanaryRun("1", "2026-11-22T02:00:00+00:00", H200, "2 × H200", "a" * 40, 0.01, 0.003, (case,))])
    cases = [synthetic.gather(1 << 24, world=world) for world in (2, 8)]
    frame = synthetic.history(2, cases, machines=[H200])
    built = made_site.build_frame(frame, results.parent / "site", results=results)
    return built.as_uri()


def opened(page: chromium.Page, address: str) -> str:
    """Open a page; the text of its view."""
    page.open(address)
    page.wait("document.querySelector('#view').children.length && !document.querySelector('[data-busy]')")
    text: str = page.run("document.querySelector('#view').innerText")
    return text


def test_the_pages_show_the_records_and_keep_their_state_in_the_address(
    page: chromium.Page, machines_site: str
) -> None:
    text = opened(page, f"{machines_site}/machines.html")
    assert "GPU 1: clock at work 1,500 MHz, its peers have 1,980 MHz" in text
    assert "1 missed" in text
    assert HOSTILE in text
    page.run("[...document.querySelectorAll('main select')].at(-1).value = 'power'")
    page.run("[...document.querySelectorAll('main select')].at(-1).dispatchEvent(new Event('change'))")
    page.wait("document.querySelector('.plot').getAttribute('aria-label').startsWith('power at work')")
    assert "measure=power" in page.run("location.hash")
    page.run("history.back()")
    page.wait("document.querySelector('.plot').getAttribute('aria-label').startsWith('clock at work')")
    text = opened(page, f"{machines_site}/scaling.html#value=us")
    assert "Speed over ranks" in text
    label = page.run("document.querySelector('.plot').getAttribute('aria-label')")
    assert "µs over 2, 8 ranks" in label
    text = opened(page, f"{machines_site}/checks.html")
    assert f"gemm/triton/m16 on {H200}: wrong, {HOSTILE}" in text.replace("\u2068", "").replace("\u2069", "")
    assert page.run("window.pwned") is None


def test_a_kernels_page_says_when_it_was_last_verified(page: chromium.Page, machines_site: str) -> None:
    page.open(f"{machines_site}/kernels/all_gather.html")
    page.wait("document.getElementById('verified')")
    text = page.run("document.getElementById('verified').innerText")
    assert text.startswith("last verified 2026-11-21 at cccccccc: 6 results right on 2, 8 ranks; "), "trials count too"
    assert "triton: 1 wrong" in text
    page.run("document.querySelector('#verified a').click()")
    page.wait("location.pathname.endsWith('checks.html') && document.querySelector('#shown')?.textContent")
    assert page.run("document.querySelector('#shown').textContent") == "6 of 7 rows"
