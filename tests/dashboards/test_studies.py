"""Studies on the site: what their page is told, the files beside it, and folders that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ci.records import store
from dashboards.figures import __main__ as command
from dashboards.views import studies
from tests.ci.made_trials import BASE, HEAD, tree, write
from tests.ci.sweeps.made_lines import line
from tests.dashboards import chromium, made_site, made_studies, synthetic
from tests.dashboards.made_site import received
from tests.dashboards.synthetic import TEXTS

MACHINE = "h200x1-537ca5d2"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    made = {name: made_studies.MADE[name]() for name in ("curve", "before_after")}
    folder = made_studies.write(tmp_path, "m_sweep", made)
    (folder / "curve.png").write_bytes(b"\x89PNG")
    return tmp_path


def told(results: Path) -> dict[str, Any]:
    site = made_site.site_of(synthetic.history(1).iloc[:0], results=results)
    return {path: received(value) for path, value in made_site.data_of(studies.VIEW, site).items()}


def test_a_study_is_listed_with_its_question_and_shown_with_its_pictures(results: Path) -> None:
    data = told(results)
    (listed,) = data["views/studies"]["studies"]
    assert (listed["name"], listed["machine"], listed["question"]) == ("m_sweep", MACHINE, "Which tile for which M?")
    assert (listed["figures"], listed["waits"], listed["commit"]) == (2, 1, "0ff36f1b")
    shown = data[listed["path"]]
    assert [figure["name"] for figure in shown["figures"]] == ["curve", "before_after"]
    marks = shown["figures"][0]["picture"]["panels"][0]["marks"]
    rows = made_studies.curve()[1]
    triton = next(one for one in marks if one["name"] == "triton")
    assert triton["y"] == pytest.approx(rows[rows["backend"] == "triton"]["tflops"].tolist(), rel=1e-5)
    assert triton["x"] == [2.0**k for k in range(11)]
    assert [one["y"] for one in marks if one["kind"] == "rule"] == [[650.0]]
    assert shown["figures"][0]["foot"][-1].startswith("1 × H200 (h200x1-537ca5d2) · Triton 3.6.0")
    assert shown["guidance"][1] == {"rule": "else 128x128", "loses": None}
    assert shown["problems"] == []


def test_a_table_has_headings_with_units_numbers_and_holes(results: Path) -> None:
    path = results / "studies" / "m_sweep" / MACHINE / "table.csv"
    path.write_text("M,backend,triton: us,why\n1,triton,2.5,\n16,blas,,too slow\n")
    table = told(results)[f"views/study/m_sweep/{MACHINE}"]["table"]
    assert [column["title"] for column in table["columns"]] == ["M, rows", "backend", "triton: time, µs", "why"]
    assert [column["number"] for column in table["columns"]] == [True, False, True, False]
    assert table["rows"] == [[1, "triton", 2.5, ""], [16, "blas", None, "too slow"]]


@pytest.mark.slow
def test_files_lie_beside_the_page_under_safe_names(results: Path) -> None:
    folder = results / "studies" / "m_sweep" / MACHINE
    (folder / "curve.json").rename(folder / "Über M.json")
    (folder / "curve.csv").rename(folder / "Über M.csv")
    said = json.loads((folder / "study.json").read_text())
    said["figures"] = ["Über M", "before_after", "../../../../etc/passwd", "gone"]
    (folder / "study.json").write_text(json.dumps(said))
    site = made_site.site_of(synthetic.history(1).iloc[:0], results=results)
    files = made_site.files_of(studies.VIEW, site)
    shown = told(results)[f"views/study/m_sweep/{MACHINE}"]
    assert [figure["name"] for figure in shown["figures"]] == ["Über M", "before_after"]
    linked = [one["href"] for figure in shown["figures"] for one in figure["files"]] + [
        one["href"] for one in shown["files"]
    ]
    assert set(linked) == set(files)
    assert all(path.isascii() and ".." not in path for path in files)
    assert files[f"studies/m_sweep/{MACHINE}/table.md"] == b"# table\n"


def test_a_folder_that_cannot_be_used_is_said_and_takes_no_other_down(results: Path) -> None:
    bad = results / "studies" / "tiles" / MACHINE
    bad.mkdir(parents=True)
    (bad / "study.json").write_text("[]")
    folder = results / "studies" / "m_sweep" / MACHINE
    (folder / "curve.csv").write_text("M\n1\n")
    data = told(results)
    assert data["views/studies"]["problems"] == [
        f"studies/tiles/{MACHINE}/study.json cannot be used (it is not one object)"
    ]
    shown = data[f"views/study/m_sweep/{MACHINE}"]
    assert [figure["name"] for figure in shown["figures"]] == ["before_after"]
    assert shown["problems"] == ["figure curve: 'y' shows the column 'tflops'; the data have: M"]


def test_without_studies_the_site_has_nothing_new(tmp_path: Path) -> None:
    frame = synthetic.history(1, synthetic.CASES[:1])
    (tmp_path / "studies").mkdir()
    assert not any("studies" in path for path in made_site.site_files(frame, results=tmp_path) if "static" not in path)


def test_studies_alone_are_a_page_without_records(results: Path) -> None:
    files = made_site.site_files(synthetic.history(1).iloc[:0], results=results)
    assert b"There are no records yet" not in files["studies.html"]
    assert b"data-alone" in files["studies.html"]
    assert pd.read_csv(results / "studies" / "m_sweep" / MACHINE / "curve.csv").shape[0] == 33


# Recorded sweeps on the site: the newest of each operator, its points, winners and problems.


POINTS = [({"num_warps": 8}, 0.9), ({"num_warps": 2}, 1.3), ({"num_warps": 16}, "crash")]


@pytest.fixture
def sweep_results(tmp_path: Path) -> Path:
    """Two commits; the newer one has two cases, of which nothing is faster in the second."""
    older = line([({"num_warps": 1}, 0.5)], trees={"head": tree(BASE)}, rounds=8)
    newer = [line(POINTS, rung=rung, trees={"head": tree(HEAD)}) for rung in (0, 1)]
    second = line([({"num_warps": 8}, 1.1)], case="m64", batch=1, trees={"head": tree(HEAD)})
    old = {**older, "started_at": "2020" + older["started_at"][4:]}
    store.record([write(tmp_path / "t.jsonl", old, *newer, second)], tmp_path / "results")
    return tmp_path / "results"


def told_sweeps(sweep_results: Path) -> dict[str, Any]:
    site = made_site.site_of(synthetic.history(1).iloc[:0], results=sweep_results)
    return {path: received(value) for path, value in made_site.data_of(studies.SWEEPS, site).items()}


def test_the_newest_sweep_of_an_operator_is_listed_with_its_winners(sweep_results: Path) -> None:
    assert len(list(sweep_results.glob("sweeps/*/*.jsonl.gz"))) == 2
    data = told_sweeps(sweep_results)
    (listed,) = data["views/sweeps"]["sweeps"]
    assert (listed["commit"], listed["cases"], listed["points"], listed["measured"]) == (HEAD, 2, 6, 5)
    assert listed["faster"] == 1
    found = data[listed["path"]]
    first, second = found["winners"]
    assert (first["case"], first["knobs"], first["beats"]) == ("m16", "num_warps=8", True)
    assert first["ratio"] == pytest.approx(0.9, rel=0.01)
    assert (second["case"], second["is_anchor"], second["beats"]) == ("m64", True, False)


def test_its_points_are_drawn_by_case_and_failures_are_counted(sweep_results: Path) -> None:
    data = told_sweeps(sweep_results)
    found = data[data["views/sweeps"]["sweeps"][0]["path"]]
    picture = found["figure"]["picture"]
    assert [panel["title"] for panel in picture["panels"]] == ["m16", "m64"]
    assert picture["panels"][0]["said"].startswith("fastest: triton num_warps=8\n")
    assert "not measured: 1 crash" in picture["notes"]
    crash = next(row for row in found["points"] if row["status"] == "crash")
    assert (crash["ratio"], crash["us"], crash["knobs"]) == (None, None, "num_warps=16")


@pytest.mark.slow
def test_a_damaged_file_is_said_and_a_site_without_sweeps_has_no_page(sweep_results: Path, tmp_path: Path) -> None:
    bad = sweep_results / "sweeps" / "m" / "0000-env-softmax.jsonl.gz"
    bad.parent.mkdir()
    bad.write_bytes(b"no gzip")
    data = told_sweeps(sweep_results)["views/sweeps"]
    assert len(data["sweeps"]) == 1
    (problem,) = data["problems"]
    assert "sweeps/m/0000-env-softmax.jsonl.gz" in problem
    files = made_site.site_files(synthetic.history(1, synthetic.CASES[:1]), results=tmp_path / "none")
    assert "sweeps.html" not in files


def test_a_sweep_is_drawn_for_paper_and_what_is_missing_is_said(
    sweep_results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["sweep", "--results", str(sweep_results), "--out", str(tmp_path / "s.svg")]
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


def test_the_page_shows_the_points_of_a_case(page: chromium.Page, sweep_results: Path, tmp_path: Path) -> None:
    frame = synthetic.history(1, synthetic.CASES[:1])
    site = made_site.build_frame(frame, tmp_path / "site", results=sweep_results)
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


# The page of studies in headless Chromium.


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
    return made_site.build_frame(frame, folder / "site", results=folder).as_uri()


def _named(text: str) -> made_studies.Made:
    said, data = made_studies.curve()
    name = text.encode("utf-8", "replace").decode()
    return said | {"title": name or "x"}, data.replace({"backend": {"triton": name}})


def test_every_kind_of_figure_is_drawn_and_fits(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/studies.html#study=every_kind")
    assert page.texts("nav [aria-current]") == ["Studies"]
    assert page.texts("[data-failed]") == []
    assert len(page.texts("section.figure")) == len(made_studies.MADE)
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
    }
    page.run(chromium.PRINTED)
    for width, scheme in ((1400, "light"), (390, "dark")):
        page.size(width, 900, scheme)
        assert page.run("document.documentElement.scrollWidth") <= width, "the page does not scroll sideways"
    assert "nothing" not in page.texts("[data-figure=sweep] .foot")[0]
    assert "not measured: 18 spills, 12 same code" in page.texts("[data-figure=sweep]")[0]
    assert "M up to 64: 64x64\nloses 1.2 % against the best point" in page.texts("main")[0]


def test_figures_are_drawn_as_they_come_near_the_window_and_all_before_printing(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/studies.html#study=every_kind")
    drawn, every = (f"document.querySelectorAll('{plots}').length" for plots in (".plot:has(canvas)", ".plot"))
    assert page.run(drawn) < page.run(every) / 2
    last = list(made_studies.MADE)[-1]
    height = page.run("document.documentElement.scrollHeight")
    page.tab.locator(f"[data-figure={last}] .plot").last.scroll_into_view_if_needed()
    page.wait(f"document.querySelector('[data-figure={last}] canvas')")
    page.run(chromium.PRINTED)
    assert page.run(drawn) == page.run(every)
    assert page.run("document.documentElement.scrollHeight") == height, "what stands below does not move"


def test_the_box_at_the_cursor_has_the_numbers_of_the_data(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/studies.html#study=every_kind")
    page.tab.locator("[data-figure=curve] .plot").focus()
    page.key("ArrowRight")
    rows = made_studies.curve()[1]
    first = rows[rows["backend"] == "triton"].iloc[0]
    said = page.texts("[data-figure=curve] .plot-tip")[0]
    assert "triton" in said
    assert f"{first['tflops']:.3f}" in said
    page.tab.locator("[data-figure=heatmap] .plot").focus()
    page.key("ArrowRight")
    assert "1.000" in page.texts("[data-figure=heatmap] .plot-tip")[0]
    page.tab.locator("[data-figure=bars] .plot").focus()
    page.key("ArrowRight")
    assert "TFLOPS" in page.texts("[data-figure=bars] .plot-tip")[0]


def test_a_group_is_hidden_and_the_address_keeps_it(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/studies.html#study=every_kind")
    page.tab.locator("[data-figure=curve] .legend button", has_text="triton").click()
    page.wait("location.hash.includes('off=triton') && !document.querySelector('[data-busy]')")
    page.tab.locator("[data-figure=curve] .plot").focus()
    page.key("ArrowRight")
    assert "gluon" in page.texts("[data-figure=curve] .plot-tip")[0]
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
    shown = [float(text.replace(",", "")) for text in page.texts(f"{table} tbody td:nth-child(3)")]
    assert shown == sorted(shown, reverse=True)
    links = page.run("[...document.querySelectorAll('main a[download]')].map(a => a.href)")
    assert all(Path(link.removeprefix("file://")).is_file() for link in links)
    assert len(links) == 2 + 2 * len(made_studies.MADE)


def test_hard_data_and_odd_names_stay_text(page: chromium.Page, site: str) -> None:
    for study in ("hard", "odd_names"):
        page.size(1000, 900)
        page.open(f"{site}/studies.html#study={study}")
        page.run(chromium.PRINTED)
        assert page.texts("[data-failed], .notice.bad") == []
        assert page.run("window.pwned") is None
        assert page.run("document.querySelectorAll('main img, main script').length") == 0
        assert page.run("document.documentElement.scrollWidth") <= 1000
        page.tab.locator(".plot").first.focus()
        page.key("ArrowRight")
