"""The overview's table and odd names, in headless Chromium."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from ci.records import derived
from tests.dashboards import chromium, made_site, synthetic
from tests.dashboards.test_browser import MI300X, texts

LINES = "#kernels tbody tr:not(.group)"
BUILT = "!document.querySelector('#kernels').dataset.building"


@pytest.fixture(scope="module")
def long_site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """600 own series of 15 kernels."""
    frame = derived.derive(synthetic.large(900, 3))
    return made_site.build_frame(frame, tmp_path_factory.mktemp("long") / "site").as_uri()


def test_a_long_table_begins_at_once_and_ends_whole(page: chromium.Page, long_site: str) -> None:
    page.open(f"{long_site}/index.html#all=1")
    page.wait(BUILT)
    assert texts(page, "#shown") == ["600 of 600 series"]
    assert page.run(f"document.querySelectorAll({LINES!r}).length") == 600
    assert page.run("new Set([...document.querySelectorAll('tr.group a')].map(a => a.textContent)).size") == 15
    cases = page.run(f"[...document.querySelectorAll({LINES + ' th a'!r})].map(a => a.href)")
    assert len(set(cases)) == 600, "no row twice"
    assert page.run("document.querySelectorAll('#kernels .spark').length") < 100, "lines only near the window"
    page.run(f"[...document.querySelectorAll({LINES + ' a'!r})].at(-1).focus()")
    page.wait("document.activeElement.closest('tr').querySelector('.spark')")
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert page.run("document.querySelectorAll('#kernels .spark').length") == 600


def test_printing_does_not_wait_for_the_rest_of_the_table(page: chromium.Page, long_site: str) -> None:
    page.open(f"{long_site}/index.html")
    page.run("(document.querySelector('#all').click(), window.dispatchEvent(new Event('beforeprint')))")
    assert page.run(f"[{BUILT}, document.querySelectorAll({LINES!r}).length]") == [True, 600]


def test_order_and_choice_are_in_the_address_and_back_undoes_them(page: chromium.Page, long_site: str) -> None:
    page.open(f"{long_site}/index.html#machine={MI300X}")
    few = page.run(f"document.querySelectorAll({LINES!r}).length")
    page.run("document.querySelector('#all').click()")
    page.wait(BUILT)
    newest = "[...document.querySelectorAll('#kernels thead button')].find(b => b.innerText.startsWith('newest'))"
    page.run(f"{newest}.click()")
    assert "sort=-newest" in page.run("location.hash")
    address = page.run("location.hash")
    page.run("history.back()")
    page.wait("!location.hash.includes('sort')")
    page.wait("!document.querySelector('#kernels th[aria-sort]')")
    page.run("history.back()")
    page.wait("!document.querySelector('#all').checked")
    page.wait(f"document.querySelectorAll({LINES!r}).length === {few}")
    page.open(f"{long_site}/index.html{address}")
    assert page.run("document.querySelector('#kernels th[aria-sort]').getAttribute('aria-sort')") == "descending"


def test_the_filter_of_an_address_is_one_of_ours(page: chromium.Page, long_site: str) -> None:
    page.open(f"{long_site}/index.html#only=constructor&sort=__proto__")
    assert texts(page, "#shown") == ["90 of 600 series"], "the headlines"


def test_what_was_never_tried_here_is_a_count_until_it_is_asked_for(page: chromium.Page, tmp_path: Path) -> None:
    frame = synthetic.history(2, machines=[MI300X])
    never = (frame["kernel"] == "all_gather") & ~frame["case"].isin(["w8_64k", "w8_256k"])
    frame = synthetic.spoil(frame, never, "skipped", "needs 8 ranks")
    site = made_site.build_frame(frame, tmp_path / "site").as_uri()
    page.open(f"{site}/index.html#machine={MI300X}&all=1")
    assert texts(page, "#shown") == ["18 of 30 series; 12 cannot be measured here"]
    assert "12 cannot be measured here, beside rccl" in " ".join(texts(page, "tr.group"))
    assert texts(page, "#kernels .status") == []
    page.open(f"{site}/index.html#machine={MI300X}&q=skipped")
    assert texts(page, "#kernels .status") == ["skipped"] * 12
    assert texts(page, "#newest")[0].startswith("All numbers are of the newest commit")


def test_numbers_for_other_programs_are_linked(page: chromium.Page, long_site: str) -> None:
    for address, path in (("index.html", "overview"), ("kernels/gemm_0.html", "kernel-gemm_0")):
        page.open(f"{long_site}/{address}")
        links = page.run("[...document.querySelectorAll('#downloads a')].map(a => a.href)")
        assert links == [
            *(f"{long_site}/data/{MI300X}/{path}.{kind}" for kind in ("json", "csv")),
            f"{long_site}/data/README.txt",
        ]
        assert all(Path(link.removeprefix("file://")).exists() for link in links)


# ---- odd names ------------------------------------------------------------------------------------------------------


def named(*names: str) -> pd.DataFrame:
    """One kernel for each name, whose case and backend have it too."""
    made = [
        synthetic.history(2, [synthetic.gemm(name, 64, 64, 64, kernel=name)], machines=[MI300X], backends=(name,))
        for name in names
    ]
    return pd.concat(made, ignore_index=True)


@pytest.mark.parametrize("name", ["constructor", "toString", "__proto__"])
def test_names_that_every_object_has(page: chromium.Page, tmp_path: Path, name: str) -> None:
    names = ("constructor", "toString", "__proto__", "gemm")
    two = pd.concat([named(*names), synthetic.history(2, synthetic.CASES[:1], machines=["h200x2-1a2b3c4d"])])
    site = made_site.build_frame(two, tmp_path / "site").as_uri()
    page.open(f"{site}/index.html#machine={MI300X}")
    address = page.run(f"[...document.querySelectorAll('tr.group a')].find(a => a.textContent === {name!r}).href")
    page.open(address)
    assert texts(page, "h1") == [name]
    assert texts(page, "tr.opened .opener") == [name]
    assert page.run("document.querySelectorAll('.detail .stroke').length") == 2
    page.open(address.split("#")[0] + "#machine=h200x2-1a2b3c4d")
    assert page.run("[document.querySelector('#absent-here').hidden, document.querySelector('#here').hidden]") == [
        False, True]  # fmt: skip


@pytest.mark.parametrize("width", [360, 1400])
def test_a_name_of_600_letters_is_no_wider_than_the_window(page: chromium.Page, tmp_path: Path, width: int) -> None:
    frame = named("k" * 600)
    for column in ("device", "market_name", "env", "tier", "dtype"):
        frame[column] = frame[column].astype(str) + "x" * 600
    frame["machine"] = MI300X + "m" * 100
    site = made_site.build_frame(frame, tmp_path / "site")
    page.size(width, 800)
    for path in (site / "index.html", next((site / "kernels").iterdir())):
        page.open(path.as_uri())
        page.wait(BUILT.replace("kernels'", "kernels, #cases'"))
        assert page.run("document.documentElement.scrollWidth") <= width, path.name
        rows = "[...document.querySelectorAll('#kernels tr, #cases tr:not(.detail-row)')]"
        assert page.run(f"Math.max(...{rows}.map(row => row.offsetHeight))") < 2500, "not a letter a line"


OVERRIDE = "\u202e"


def test_right_to_left_overrides_stay_within_their_own_text(page: chromium.Page, tmp_path: Path) -> None:
    frame = named(f"gemm{OVERRIDE}abc")
    frame = synthetic.spoil(frame, frame["backend"] == "blas", "wrong", f"why{OVERRIDE}abc")
    for column in ("device", "env", "tier", "dtype", "machine"):
        frame[column] = frame[column].astype(str) + OVERRIDE
    site = made_site.build_frame(frame, tmp_path / "site", problems=[f"left{OVERRIDE}abc"])
    for path in (site / "index.html", next((site / "kernels").iterdir())):
        page.open(path.as_uri() + "#all=1")
        assert page.run(LOOSE.replace("OVERRIDE", OVERRIDE)) == [], path.name


LOOSE = """(() => {
  const loose = [], isolated = element => getComputedStyle(element).unicodeBidi.includes('isolate');
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    let element = node.parentElement;
    if (!node.data.includes('OVERRIDE') || element.closest('svg, option, script')) continue;
    while (element.textContent === node.data && !isolated(element)) element = element.parentElement;
    if (element.textContent !== node.data) loose.push(element.outerHTML.slice(0, 200));
  }
  return loose;
})()"""
"""Elements in which a text with an override stands beside other text, and is not isolated from it."""
