"""What the README and the guides show is what the commands print."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.program import Tally
from ci.judging import policy
from ci.judging.judge import judge
from ci.report import model, terminal
from ci.trials.comparisons import read_recording
from tests.kit import ROOT
from tests.study import house, pictures, scoreboard
from tests.test_house import files

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMPARE, H200 = ((ROOT / ".github/guides" / name).read_text(encoding="utf-8") for name in ("compare.md", "h200.md"))

UNTIL = "2026-11-29"
"""The day of the guide's tables: later records make no old page wrong."""


def test_the_example_is_what_the_command_prints():
    command = re.search(r"ridgeline ab --replay (\S+)", COMPARE)
    assert command is not None
    report = model.report_of(
        judge(read_recording(ROOT / command[1]).comparisons, policy.load()), [], title="recorded trials"
    )
    assert terminal.render(report, 100).strip() in COMPARE


@pytest.mark.slow
def test_the_table_of_results_is_made_from_the_records():
    table = scoreboard.table(ROOT / "results", UNTIL).strip()
    assert table in H200, f"run `python -m tests.study.scoreboard --until {UNTIL}` and paste what it prints"


def test_the_table_of_both_regimes_is_made_from_the_records():
    table = scoreboard.sustained_table(ROOT / "results", UNTIL).strip()
    assert table in H200, f"run `python -m tests.study.scoreboard --sustained --until {UNTIL}` and paste what it prints"


def test_what_was_checked_is_counted_from_the_checks():
    checks, tally = dict[tuple[str, str], dict[str, Any]](), Tally()
    with gzip.open(ROOT / "results/checks/h200.jsonl.gz", "rt") as lines:
        for line in map(json.loads, lines):
            checks[line["kernel"], line["case"]] = line  # the last of each
    for line in checks.values():
        tally.add_check(line)
    counted = tally.in_words().splitlines()[-1]
    assert counted.split(";")[0] in H200, f"the checks say: {counted}"


def test_links_and_paths_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (ROOT / target).exists(), target


def test_the_readme_is_read_in_one_go():
    assert len(README.splitlines()) <= 130
    guides = {path.name for path in (ROOT / ".github/guides").glob("*.md")}
    assert set(re.findall(r"\.github/guides/(\w+\.md)", README)) == guides, "a guide that nobody is led to"


def test_the_pictures_are_what_the_command_draws():
    folder = ROOT / ".github/pictures"
    assert (folder / "verdict.svg").read_text(encoding="utf-8") == pictures.verdict(ROOT), "run `make pictures`"
    assert "http" not in re.sub(r'xmlns="[^"]*"|<!--.*?-->', "", pictures.verdict(ROOT)), "no font of the network"
    page = (folder / "page.png").read_bytes()
    assert page.startswith(b"\x89PNG")
    assert (int.from_bytes(page[16:20]), int.from_bytes(page[20:24])) == pictures.SIZE
    assert len(page) <= 150_000


def test_a_picture_that_cannot_be_taken_says_what_to_do(tmp_path):
    done = CliRunner().invoke(pictures.main, [str(tmp_path), "--site", str(tmp_path / "none")])
    assert done.exit_code
    assert re.search(r"`ridgeline site` builds it|install `chromium`", done.output)


def test_every_room_is_in_the_picture_of_the_house_and_says_what_it_is():
    drawn = (ROOT / ".github/pictures/house.svg").read_text(encoding="utf-8")
    for room in (room for package in house.COLUMNS for room in house.rooms(package)):
        assert room.subject, f"{room.name}/__init__.py says nothing"
        assert f">{room.name.partition('.')[2]}<" in drawn, "run `make pictures`"


def test_the_path_of_a_sample_and_what_to_look_for_are_there():
    said = (ROOT / ".github/ARCHITECTURE.md").read_text(encoding="utf-8")
    names = re.findall(r"`((?:benchmarks|ci|dashboards|kernels)\.[\w.]+)`", said)
    assert len(names) > 20
    for name in names:
        module = max((one for one in files() if name == one or name.startswith(f"{one}.")), key=len, default="")
        *_, last = name.split(".")
        assert name == module or re.search(rf"\b(?:def|class) {last}\b", files()[module].read_text()), name
    for path in re.findall(r"`([\w/]+(?:/[\w]+|\.py))`", said):
        assert (ROOT / path).exists(), path
