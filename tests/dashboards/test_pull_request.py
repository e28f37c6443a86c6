"""The page of a pull request, from the golden report files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci.commands.site import site
from ci.report.json_report import ReportError
from dashboards import __main__ as program
from dashboards.views import SiteInput, pull_request
from tests.dashboards import synthetic

GOLDEN = Path(__file__).parents[1] / "golden" / "report"


@pytest.mark.parametrize("name", ["slower", "faster", "same", "broken", "unsure", "hostile"])
def test_the_page_has_every_case_and_number_of_a_report(name: str) -> None:
    path = GOLDEN / f"{name}.json"
    whole, taken = json.loads(path.read_text()), pull_request.read(path)
    assert (taken["verdict"], taken["why"]) == (whole["verdict"], whole["why"])
    assert taken["cases"] == [{key: case[key] for key in pull_request.SHAPE["cases"][0]} for case in whole["cases"]]
    assert taken["skipped"] == whole["skipped"]
    assert taken["floors"] == whole["floors"]


def test_the_page_has_the_causes_of_a_report(tmp_path: Path) -> None:
    whole = json.loads((GOLDEN / "slower.json").read_text())
    tried = {
        "kind": "knob",
        "name": "num_stages",
        "change": "3 → 2",
        "answer": "explains all",
        "why": "",
        "part_of": "",
    }
    numbers = {"share": 0.99, "ratio": 1.0001, "low": 0.998, "high": 1.002, "trials": 3}
    cause = {"cases": ["gemm/triton/m64"], "measured": "gemm/triton/m64", "state": "proven", "sentence": "knob"}
    cause |= {"tried": [tried | numbers], "code": ["LDS bytes: 3 → 2"], "experiments": 1, "trials": 3, "seconds": 12.5}
    path = tmp_path / "report.json"
    path.write_text(json.dumps({**whole, "explanations": [cause]}))
    assert pull_request.read(path)["explanations"] == [cause]
    strange = {**cause, "tried": [{**tried, "ratio": "1"}, 3], "code": [1], "trials": "x"}
    (found,) = pull_request.taken({"explanations": [strange, "y"]})["explanations"]
    assert (found["code"], found["trials"], found["tried"][0]["ratio"], len(found["tried"])) == ([], 0, None, 1)


def test_only_the_types_that_the_page_expects_pass() -> None:
    value = {"verdict": ["SLOWER"], "cases": [{"case": 1, "ratio": "1.0", "trials": True}, "x"], "machine": "y"}
    taken = pull_request.taken(value)
    assert (taken["verdict"], taken["machine"]) == ("", {})
    assert [(case["case"], case["ratio"], case["trials"]) for case in taken["cases"]] == [("", None, None)]


@pytest.mark.parametrize(
    ("content", "why"), [("{", "not JSON"), ("[]", "not a report"), ('{"format": "x"}', "not a report")]
)
def test_another_file_is_refused_by_name(
    tmp_path: Path, content: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(pull_request.ReportFileError, match=why):
        pull_request.read(path)
    folders = ["--results", str(tmp_path / "none"), "--out", str(tmp_path / "site")]
    assert program.main([*folders, "--report", str(path)]) == 3
    assert why in capsys.readouterr().err
    assert not (tmp_path / "site").exists()


def test_the_command_checks_a_report_before_it_builds(tmp_path: Path) -> None:
    value = json.loads((GOLDEN / "slower.json").read_text())
    value["cases"][0]["ratio"] = "1.0"
    path = tmp_path / "report.json"
    path.write_text(json.dumps(value))
    good = CliRunner().invoke(site, ["--dry-run", "--report", str(GOLDEN / "slower.json")])
    assert good.exit_code == 0, good.output
    refused = CliRunner().invoke(site, ["--out", str(tmp_path / "site"), "--report", str(path)])
    assert isinstance(refused.exception, ReportError)
    assert "cases[0].ratio" in str(refused.exception)
    assert not (tmp_path / "site").exists()


def test_the_cases_are_there_as_csv() -> None:
    report = pull_request.read(GOLDEN / "slower.json")
    made = dict(pull_request.files(SiteInput(synthetic.history(1).iloc[:0], reports=(report,))))
    rows = list(csv.DictReader(io.StringIO(made["pull_request.csv"].decode())))
    assert [row["case"] for row in rows] == [case["case"] for case in report["cases"]]
    assert rows[0]["machine"] == "h200-1a2b3c4d"


def test_without_a_report_there_is_no_page() -> None:
    bare = SiteInput(synthetic.history(1).iloc[:0])
    assert not pull_request.VIEW.shown(bare)
