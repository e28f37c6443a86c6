"""The page of studies in headless Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboards import chromium, made_site, made_studies, synthetic
from tests.dashboards.hostile_texts import TEXTS


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("studies")
    made_studies.write(folder, "every_kind", {name: make() for name, make in made_studies.MADE.items()})
    hard = made_studies.hostile()
    kept = ("one_point", "holes", "long_groups", "long_map", "long_changes", "one_cell", "sweep_1")
    made_studies.write(folder, "hard", {name: hard[name] for name in kept})
    odd = {f"f{n}": _named(text) for n, text in enumerate(TEXTS[:4])}
    made_studies.write(folder, "odd_names", odd)
    frame = synthetic.history(2, synthetic.CASES[:2])
    return made_site.build_frame(frame, folder / "site", results_dir=folder).as_uri()


def _named(text: str) -> made_studies.Made:
    said, data = made_studies.curve()
    name = text.encode("utf-8", "replace").decode()
    return said | {"title": name or "x"}, data.replace({"backend": {"triton": name}})


def texts(page: chromium.Page, selector: str) -> list[str]:
    found: list[str] = page.run(f"[...document.querySelectorAll({selector!r})].map(e => e.innerText)")
    return found


def test_every_kind_of_figure_is_drawn_and_fits(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/studies.html#study=every_kind")
    assert texts(page, "nav [aria-current]") == ["Studies"]
    assert texts(page, "[data-failed]") == []
    assert len(texts(page, "section.figure")) == len(made_studies.MADE)
    kinds = {
        name: page.run(f"document.querySelectorAll('[data-figure={name}] .plot').length") for name in made_studies.MADE
    }
    assert kinds == {
        **dict.fromkeys(made_studies.MADE, 1),
        "panels": 3,
        "three": 3,
        "cus": 3,
        "scaling": 2,
        "roofline": 2,
        "before_after": 2,
        "regime": 2,
    }
    for width, scheme in ((1400, "light"), (390, "dark")):
        page.size(width, 900, scheme)
        assert page.run("document.documentElement.scrollWidth") <= width, "the page does not scroll sideways"
    assert "nothing" not in texts(page, "[data-figure=sweep] .foot")[0]
    assert "not measured: 18 spills, 12 same code" in texts(page, "[data-figure=sweep]")[0]
    assert "M up to 64: 64x64\nloses 1.2 % against the best point" in texts(page, "main")[0]


def test_the_box_at_the_cursor_has_the_numbers_of_the_data(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/studies.html#study=every_kind")
    page.tab.locator("[data-figure=curve] .plot").focus()
    page.key("ArrowRight")
    rows = made_studies.curve()[1]
    first = rows[rows["backend"] == "triton"].iloc[0]
    said = texts(page, "[data-figure=curve] .plot-tip")[0]
    assert "triton" in said
    assert f"{first['tflops']:.3f}" in said
    page.tab.locator("[data-figure=heatmap] .plot").focus()
    page.key("ArrowRight")
    assert "1.000" in texts(page, "[data-figure=heatmap] .plot-tip")[0]
    page.tab.locator("[data-figure=bars] .plot").focus()
    page.key("ArrowRight")
    assert "TFLOPS" in texts(page, "[data-figure=bars] .plot-tip")[0]


def test_a_group_is_hidden_and_the_address_keeps_it(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/studies.html#study=every_kind")
    page.tab.locator("[data-figure=curve] .legend button", has_text="triton").click()
    page.wait("location.hash.includes('off=triton') && !document.querySelector('[data-busy]')")
    page.tab.locator("[data-figure=curve] .plot").focus()
    page.key("ArrowRight")
    assert "gluon" in texts(page, "[data-figure=curve] .plot-tip")[0]
    page.tab.get_by_role("button", name="hard", exact=True).click()
    page.wait("location.hash.includes('study=hard') && !document.querySelector('[data-busy]')")
    assert "off=" not in page.run("location.hash")
    page.tab.go_back()
    page.wait("location.hash.includes('off=triton') && !document.querySelector('[data-busy]')")


def test_the_table_is_sorted_and_its_files_are_there(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/studies.html#study=every_kind")
    table = "[data-table=study-every_kind]"
    page.tab.locator(f"{table} thead button", has_text="speed, TFLOPS").click()
    page.wait("location.hash.includes('order=-triton')")
    shown = [float(text.replace(",", "")) for text in texts(page, f"{table} tbody td:nth-child(3)")]
    assert shown == sorted(shown, reverse=True)
    links = page.run("[...document.querySelectorAll('main a[download]')].map(a => a.href)")
    assert all(Path(link.removeprefix("file://")).is_file() for link in links)
    assert len(links) == 2 + 2 * len(made_studies.MADE)


def test_hard_data_and_odd_names_stay_text(page: chromium.Page, site: str) -> None:
    for study in ("hard", "odd_names"):
        page.size(1000, 900)
        page.open(f"{site}/studies.html#study={study}")
        assert texts(page, "[data-failed], .notice.bad") == []
        assert page.run("window.pwned") is None
        assert page.run("document.querySelectorAll('main img, main script').length") == 0
        assert page.run("document.documentElement.scrollWidth") <= 1000
        page.tab.locator(".plot").first.focus()
        page.key("ArrowRight")
