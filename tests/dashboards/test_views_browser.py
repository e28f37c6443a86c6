"""The views in headless Chromium: compare, backends, shapes, roofline."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest

from ci.records.ledger import Explanation, RecordedCause, TriedCause, record_causes
from dashboards.views.together import together
from tests.dashboards import chromium, made_site, synthetic
from tests.dashboards.hostile_texts import TEXTS

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


def texts(page: chromium.Page, selector: str) -> list[str]:
    found: list[str] = page.run(f"[...document.querySelectorAll({selector!r})].map(e => e.innerText)")
    return found


def choose(page: chromium.Page, label: str, value: str) -> None:
    """Choose in the select that a label names, as a person would."""
    page.tab.locator(f"main label:has-text('{label}') select").first.select_option(value)
    page.wait("!document.querySelector('[data-busy]')")


def tip(page: chromium.Page, plot: int = 0) -> str:
    """The box that the first arrow key shows."""
    page.tab.locator(".plot").nth(plot).focus()
    page.key("ArrowRight")
    return texts(page, ".plot-tip")[0]


@pytest.mark.parametrize("name", PAGES)
def test_a_view_draws_and_fits_on_screen_phone_and_paper(page: chromium.Page, site: str, name: str) -> None:
    page.open(f"{site}/{name}.html{HERE}")
    assert len(texts(page, ".grid tbody tr")) > 3
    assert texts(page, "nav [aria-current]") == [name.capitalize()]
    picture = "document.querySelector('.plot canvas').toDataURL()"
    for width, scheme, media in ((1400, "light", ""), (390, "dark", ""), (1000, "light", "print")):
        page.size(width, 900, scheme, media)
        page.wait(f"{picture} !== window.last")  # drawn anew for each of them
        page.run(f"window.last = {picture}")
        assert page.run("document.documentElement.scrollWidth") <= width, "the page does not scroll sideways"


def test_a_view_without_records_says_so(page: chromium.Page, frame: pd.DataFrame, tmp_path: object) -> None:
    out = made_site.build_frame(frame.iloc[:0], f"{tmp_path}/site")
    page.open(f"{out.as_uri()}/compare.html")
    assert "There are no records yet" in texts(page, "main")[0]


def test_odd_records_leave_no_view_broken(page: chromium.Page, tmp_path: object) -> None:
    """One commit: nothing that runs, and cases without cost or definition."""
    one = synthetic.history(1, synthetic.CASES[:2])
    failing = synthetic.spoil(one, one["backend"] != "", "crash", "worker ended by signal 11")
    bare = one.assign(flops=np.nan, hbm_bytes=np.nan, link_bytes=np.nan, payload_bytes=np.nan, yardstick="")
    for name, frame in (("failing", failing), ("bare", bare)):
        out = made_site.build_frame(frame, f"{tmp_path}/{name}").as_uri()
        for view in PAGES:
            page.open(f"{out}/{view}.html")
            assert texts(page, "#shown") != []
            assert texts(page, "[data-failed]") == []


def test_a_chart_is_used_by_keys_alone(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/roofline.html{HERE}")
    page.key("/")
    assert page.run("document.activeElement.id") == "filter"
    page.tab.locator(".plot").focus()
    page.key("ArrowRight")
    said = texts(page, "[aria-live] dl")
    page.key("ArrowRight")
    assert said != texts(page, "[aria-live] dl") != []
    page.key("Enter")
    page.tab.wait_for_url("**/kernels/*")
    page.wait(chromium.SETTLED)
    assert f"machine={MI300X}" in page.run("location.hash")


def test_the_roofline_stands_where_the_records_say(page: chromium.Page, site: str, frame: pd.DataFrame) -> None:
    page.open(f"{site}/roofline.html{HERE}&kernel=gemm")
    rows = together(frame[frame["machine"] == MI300X]).set_index(["case", "backend"])
    shown = [text.split("\t") for text in texts(page, "[data-table=roofline] tbody tr")]
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
        assert page.run("window.pwned") is None
        assert page.run("document.querySelectorAll('main img, main script').length") == 0
        assert page.run("document.documentElement.scrollWidth") <= 1000, address
        assert texts(page, "[data-failed]") == []
        if address.startswith(("compare", "roofline", "backends.html#")):
            assert len(texts(page, ".grid:not(h2 ~ .grid) tbody tr")) >= len(NAMES), address
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
    first = texts(page, ".grid caption")
    choose(page, "operator", "rms_norm")
    assert "kernel=rms_norm" in page.run("location.hash")
    assert texts(page, ".grid caption") == ["speed of rms_norm by shape"] != first
    page.tab.get_by_role("button", name="time", exact=True).first.click()
    page.wait("location.hash.includes('rate=time')")
    page.tab.go_back()
    page.wait("!location.hash.includes('rate=time') && !document.querySelector('[data-busy]')")
    page.tab.go_back()
    page.wait("!location.hash.includes('rms_norm') && !document.querySelector('[data-busy]')")
    assert texts(page, ".grid caption") == first


def test_the_map_of_winners_marks_the_best_and_the_unsupported(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/backends.html{HERE}&kernel=*")
    assert texts(page, ".grid thead th")[:2] == ["operator", "case"]
    assert all(word.startswith("best") for word in texts(page, ".grid td.best"))
    page.open(f"{site}/backends.html{HERE}&kernel=rms_norm")
    assert "wrong" in texts(page, ".grid .status")
    assert page.run("document.querySelector('.grid .status').title").startswith("||out - ref||")


def test_a_table_is_sorted_by_its_heads_and_the_address_keeps_it(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/roofline.html{HERE}")
    page.tab.get_by_role("button", name="% of roof").click()
    page.wait("location.hash.includes('sort=-peak_share')")
    shown = [float(text.split()[0]) for text in texts(page, ".grid tbody td:nth-child(7)")]
    assert shown == sorted(shown, reverse=True)
    assert page.run("document.querySelector('.grid th[aria-sort]').getAttribute('aria-sort')") == "descending"
    page.open(f"{site}/roofline.html{page.run('location.hash')}")
    assert [float(text.split()[0]) for text in texts(page, ".grid tbody td:nth-child(7)")] == shown


def test_comparing_two_commits_tells_what_is_not_comparable(
    page: chromium.Page, site: str, frame: pd.DataFrame
) -> None:
    order = frame["commit"].drop_duplicates().tolist()
    page.open(f"{site}/compare.html{HERE}&from={order[0]}&commit={order[-1]}&all=1&kernel=gemm")
    rows = [text.split("\t") for text in texts(page, "[data-table=compare] tbody tr")]
    assert rows, "gemm was defined anew halfway"
    assert {row[3] for row in rows} <= {"not comparable", "only before", "only after"}
    page.open(f"{site}/compare.html{HERE}&from={order[-2]}&commit={order[-1]}&all=1&kernel=gemm")
    assert "not comparable" not in {text.split("\t")[3] for text in texts(page, "[data-table=compare] tbody tr")}


def test_comparing_two_commits_shows_why_one_is_slower(
    page: chromium.Page, frame: pd.DataFrame, tmp_path: Path
) -> None:
    order = frame["commit"].drop_duplicates().tolist()
    tried = TriedCause("knob", "num_stages", "3 → 2", "explains all", 0.99, 1.0002, 0.998, 1.002, 3)
    one = Explanation(
        ("gemm/triton/m64",), "gemm/triton/m64", "proven", "knob: proven", (tried,), ("LDS: 1 → 2",), 1, 3
    )
    record_causes(tmp_path / "results", [RecordedCause(MI300X, order[-3], order[-1], one)])
    site = made_site.build_frame(frame, tmp_path / "site", results_dir=tmp_path / "results").as_uri()
    page.open(f"{site}/compare.html{HERE}&from={order[-3]}&commit={order[-1]}")
    (panel,) = texts(page, ".why")
    for part in ("Why: gemm/triton/m64", "proven", "knob num_stages", "99 %", "+0.02 %", "LDS: 1 → 2", "3 trials"):
        assert part in panel
    page.open(f"{site}/compare.html{HERE}&from={order[-2]}&commit={order[-1]}")
    assert texts(page, ".why") == []


def test_the_change_that_is_shown_is_that_of_the_records(page: chromium.Page, site: str, frame: pd.DataFrame) -> None:
    order = frame["commit"].drop_duplicates().tolist()
    page.open(f"{site}/compare.html{HERE}&from={order[-3]}&commit={order[-1]}&all=1&kernel=all_gather")
    cells = next(text.split("\t") for text in texts(page, ".grid tbody tr") if "w8_64k" in text and "triton" in text)
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
    assert "Two machines" in texts(page, "main")[0]
    assert len(texts(page, "[data-table=compare] tbody tr")) > 20


def test_a_comparison_is_copied_as_markdown(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/compare.html{HERE}&all=1")
    page.run("document.addEventListener('copy', () => { window.copied = document.activeElement.value; })")
    page.tab.get_by_role("button", name="Copy as Markdown").first.click()
    lines = page.run("window.copied").splitlines()
    assert lines[0].startswith("**")
    assert MI300X in lines[0]
    assert sum(line.startswith("| case |") for line in lines) == 1
    rows = len(texts(page, "[data-table=compare] tbody tr"))
    assert sum(line.startswith("| ") for line in lines) > rows > 10


def test_the_numbers_beside_a_page_are_files_that_others_read(site: str, frame: pd.DataFrame) -> None:
    path = f"{site.removeprefix('file://')}/data/{MI300X}/newest"
    table, same = pd.read_csv(f"{path}.csv"), pd.read_json(f"{path}.json")
    assert list(table.columns) == list(same.columns)
    assert len(table) == len(same) == len(together(frame[frame["machine"] == MI300X]))
    np.testing.assert_allclose(table["us"], same["us"])
