"""Studies on the site: what their page is told, the files beside it, and folders that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dashboards.views import SiteInput, studies
from tests.dashboards import made_site, made_studies, synthetic
from tests.dashboards.shown import received
from tests.dashboards.test_build import received as received_file

MACHINE = "h200x1-537ca5d2"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    made = {name: made_studies.MADE[name]() for name in ("curve", "before_after")}
    folder = made_studies.write(tmp_path, "m_sweep", made)
    (folder / "curve.png").write_bytes(b"\x89PNG")
    return tmp_path


def told(results: Path) -> dict[str, Any]:
    site = SiteInput(synthetic.history(1).iloc[:0], results_dir=results)
    return {path: received(value) for path, value in studies.VIEW.data(site)}


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


def test_files_lie_beside_the_page_under_safe_names(results: Path) -> None:
    folder = results / "studies" / "m_sweep" / MACHINE
    (folder / "curve.json").rename(folder / "Über M.json")
    (folder / "curve.csv").rename(folder / "Über M.csv")
    said = json.loads((folder / "study.json").read_text())
    said["figures"] = ["Über M", "before_after", "../../../../etc/passwd", "gone"]
    (folder / "study.json").write_text(json.dumps(said))
    site = SiteInput(synthetic.history(1).iloc[:0], results_dir=results)
    files = dict(studies.VIEW.files(site))
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
    assert not any(
        "studies" in path for path in made_site.site_files(frame, results_dir=tmp_path) if "static" not in path
    )


def test_the_same_studies_give_the_same_site(results: Path) -> None:
    frame = synthetic.history(1, synthetic.CASES[:1])
    first, second = (made_site.site_files(frame, results_dir=results) for _ in "ab")
    assert first == second
    listed = received_file(first, "views/studies")["studies"]
    assert [one["name"] for one in listed] == ["m_sweep"]
    assert f"studies/m_sweep/{MACHINE}/curve.png" in first


def test_studies_alone_are_a_page_without_records(results: Path) -> None:
    files = made_site.site_files(synthetic.history(1).iloc[:0], results_dir=results)
    assert b"There are no records yet" not in files["studies.html"]
    assert b"data-alone" in files["studies.html"]
    assert pd.read_csv(results / "studies" / "m_sweep" / MACHINE / "curve.csv").shape[0] == 33
