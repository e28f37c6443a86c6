"""Every page in a browser: no error under its policy and from a file, no text that becomes something else, addresses,
tables, charts, and WCAG 2.2 AA as axe-core checks it."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tests.dashboards import chromium, made_history, node, synthetic
from tests.dashboards.made_history import MI300X
from tests.dashboards.test_pages import study
from tests.kit import mostly_nightly
from tests.needed import needed

PACKAGE = Path(__file__).parent / "axe"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
PAGES = (
    "index",
    "compare",
    "events",
    "roofline",
    "scaling",
    "studies",
    "machines",
    "kernels/gemm",
    "kernels/all_gather",
)


@pytest.fixture(scope="session")
def tab():
    with chromium.browser(needed("Chromium")) as page:
        yield page


@pytest.fixture
def page(tab):
    """The tab, which must not have complained or asked for anything but files when the test is over."""
    if tab.crashed:
        tab.renew()
    tab.errors.clear()
    tab.requests.clear()
    tab.size(1400, 1000)
    yield tab
    assert tab.errors == []
    assert [address for address in tab.requests if not address.startswith(("file:", "data:", "about:", "blob:"))] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    frame = synthetic.lively(60)
    own = ~frame["baseline"].astype(bool)
    frame.loc[own, "paired_ratio"] = frame.loc[own, "baseline_ratio"]
    frame.loc[own, "paired_with"] = frame.loc[own, "baseline_name"].astype(object)
    for end, factor in (("low", 0.998), ("high", 1.002)):
        frame.loc[own, f"paired_{end}"] = frame.loc[own, "paired_ratio"] * factor
    folder = tmp_path_factory.mktemp("site")
    study(folder / "results" / "studies" / "m_sweep" / "h200x1")
    made = made_history.site_of(frame, made_history.lively(frame), folder / "results")
    return made_history.written(made, folder / "site", "https://github.com/OWNER/NAME")


def drawn(page):
    page.wait("!document.querySelector('.canvas') || document.querySelector('.canvas[data-drawn]')")


# ---- every page -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_drawn_from_a_file_without_an_error(page, site, name):
    page.open(f"{site.as_uri()}/{name}.html")
    drawn(page)
    assert page.run("document.querySelectorAll('#page table, #page .fold').length") > 0
    assert page.texts("[role=alert]") == []


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", mostly_nightly([390, 1280], 390))
def test_no_page_is_wider_than_the_window(page, site, name, width):
    page.size(width, 800)
    page.open(f"{site.as_uri()}/{name}.html")
    drawn(page)
    assert page.run("document.documentElement.scrollWidth") <= width


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    """The checker's script, of the locked version."""
    folder = node.installed(PACKAGE, tmp_path_factory.mktemp("axe") / "axe")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), mostly_nightly([(1400, "light"), (390, "dark")], (390, "dark")))
def test_no_page_has_a_finding(page, site, axe, width, scheme):
    options = json.dumps({"runOnly": RULES, "resultTypes": ["violations"], "preload": False})
    said = []
    for name in PAGES:
        page.size(width, 900, scheme)
        page.open(f"{site.as_uri()}/{name}.html#event=gemm-40")
        drawn(page)
        violations = page.run(f"{axe};\naxe.run({options}).then(found => found.violations)")
        said += [
            f"{name}: {one['id']}: {[element['html'][:150] for element in one['nodes'][:3]]}" for one in violations
        ]
    assert said == []


def test_hostile_names_stay_texts(page, tmp_path):
    frame = synthetic.lively(12)
    frame["case"] = frame["case"].astype(object)
    cases = frame["case"].unique()
    hostile = dict(zip(cases, synthetic.TEXTS, strict=False))
    frame["case"] = frame["case"].map(hostile).fillna("plain")
    frame["backend"] = frame["backend"].replace({"gluon": synthetic.TEXTS[1]})
    frame["why"] = frame["why"].where(frame["why"] == "", synthetic.TEXTS[0])
    history = made_history.lively(synthetic.lively(60))
    author = dataclasses.replace(history.events[0].first_bad, author=synthetic.TEXTS[1], subject=synthetic.TEXTS[0])
    past = made_history.history(dataclasses.replace(history.events[0], first_bad=author, machine=synthetic.TEXTS[2]))
    made = made_history.written(made_history.site_of(frame, past), tmp_path / "site")
    for path in sorted(made.rglob("*.html")):
        page.open(path.as_uri())
        drawn(page)
        page.run("document.querySelectorAll('details').forEach(one => (one.open = true))")
        page.run(chromium.SHOWN)
        assert page.run("window.pwned === undefined && !document.querySelector('#page script, #page svg[onload]')")


def test_without_records_every_page_says_what_to_do(page, tmp_path):
    made = made_history.written(made_history.site_of(synthetic.history(2).iloc[:0]), tmp_path / "site")
    page.open(f"{made.as_uri()}/index.html")
    assert "ridgeline run" in page.texts("main")[0]
    for name in ("compare", "events", "roofline", "scaling", "studies", "machines"):
        page.open(f"{made.as_uri()}/{name}.html")
        assert page.texts("main")[0].strip()


# ---- addresses ------------------------------------------------------------------------------------------------------


def test_addresses_of_before_lead_where_they_led(page, site):
    page.open(f"{site.as_uri()}/index.html#machine={MI300X}&env=&q=gemm&all=1")
    assert MI300X in page.texts("h1")[0]
    page.open(f"{site.as_uri()}/kernels/gemm.html#machine={MI300X}&case=llm_down_m64&backend=triton&unit=tflops")
    assert page.run("document.querySelector('.choice select').value") == "llm_down_m64"
    compare = json.loads((site / "data" / "compare.js").read_text().partition(",")[2].removesuffix(");\n"))
    commits = [one[0][:8] for one in compare["pieces"][0]["lanes"][0]["commits"]]
    page.open(f"{site.as_uri()}/compare.html#machine={MI300X}&from={commits[50]}&commit={commits[55]}&kernel=gemm")
    assert f"ridgeline gate {commits[50]} {commits[55]}" in page.texts("main pre")[0]


def test_what_an_address_names_and_is_not_there_is_said(page, site):
    for address, said in (
        ("index.html#machine=gone", "There is no machine “gone”"),
        ("kernels/gemm.html#case=gone", "There is no case “gone”"),
        ("events.html#event=gone", "There is no event “gone”"),
    ):
        page.open(f"{site.as_uri()}/{address}")
        assert said in page.texts("[role=alert]")[0]


def test_an_address_of_an_event_opens_it(page, site):
    page.open(f"{site.as_uri()}/events.html#event=gemm-40")
    (opened,) = page.texts("details[open]")
    assert "slower: +8.10 %" in opened
    assert "ridgeline ab" in opened


# ---- tables and charts ----------------------------------------------------------------------------------------------


def column(page, label):
    return page.run(
        f"[...document.querySelectorAll('h2 ~ .table td[data-label=\"{label}\"]')].map(e => e.firstChild.textContent)"
    )


def test_a_table_sorts_and_filters(page, site):
    page.open(f"{site.as_uri()}/kernels/all_gather.html#machine={MI300X}")
    page.run("[...document.querySelectorAll('h2 ~ .table th button')].find(e => e.textContent === 'of peak').click()")
    shares = [float(one.split()[0]) for one in column(page, "of peak")]
    assert shares == sorted(shares, reverse=True)
    count = len(shares)
    page.run("document.querySelector('h2 ~ .table input').focus()")
    page.tab.keyboard.type("gluon")
    page.wait(f"document.querySelector('h2 ~ .table .count').textContent.includes('of {count}')")
    assert set(column(page, "backend")) == {"gluon"}


def test_a_table_is_saved_as_csv(page, site):
    page.open(f"{site.as_uri()}/kernels/gemm.html#machine={MI300X}")
    with page.tab.expect_download() as download:
        page.run("[...document.querySelectorAll('h2 ~ .table button')].find(e => e.textContent === 'CSV').click()")
    rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    assert {row["case"] for row in rows} == {"llm_down_m64", "llm_up_m4096", "square_8192"}
    assert all(np.isfinite(float(row["seconds"])) and len(row["commit"]) == 40 for row in rows)


def test_a_case_is_chosen_without_loading_the_page_again(page, site):
    page.open(f"{site.as_uri()}/kernels/gemm.html#machine={MI300X}")
    page.run(
        "[...document.querySelectorAll('#page td a, #page th a')].find(e => e.textContent === 'square_8192').click()"
    )
    page.wait("document.querySelector('.choice select').value === 'square_8192'")
    assert page.run("location.hash").endswith("case=square_8192")
    page.run("history.back()")
    page.wait("document.querySelector('.choice select').value !== 'square_8192'")


def test_a_chart_changes_its_unit_and_hides_a_line(page, site):
    page.open(f"{site.as_uri()}/kernels/gemm.html#machine={MI300X}&case=llm_up_m4096")
    drawn(page)
    names = "document.querySelector('.choice .canvas').drawn.getOption().series.map(e => e.name)"
    assert {"triton", "gluon", "steps"} <= set(page.run(names))
    page.run("[...document.querySelectorAll('.choice .choices button')].find(e => e.textContent === 'time').click()")
    assert "blas" in page.run(names)
    assert "unit=time" in page.run("location.hash")
    page.run("[...document.querySelectorAll('.choice .legend button')].find(e => e.textContent === 'blas').click()")
    assert "blas" not in page.run(names)


def test_a_click_on_a_step_opens_its_event(page, site):
    page.open(f"{site.as_uri()}/kernels/gemm.html#machine={MI300X}&case=llm_up_m4096")
    drawn(page)
    at = page.run("""(() => {
      const canvas = document.querySelector('.choice .canvas'), chart = canvas.drawn;
      const series = chart.getOption().series.find(e => e.name === 'steps'), box = canvas.getBoundingClientRect();
      const [x, y] = chart.convertToPixel({xAxisIndex: 0, yAxisIndex: 0}, series.data[0]);
      return [box.x + x, box.y + y];
    })()""")
    page.tab.mouse.click(*at)
    page.wait("location.pathname.endsWith('events.html') && document.querySelector('details[open]')")
