"""What the README shows is what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import verify
from ci.judging import policy
from ci.judging.judge import judge
from ci.report import build as assemble
from ci.report import terminal
from ci.study import curve, scoreboard
from ci.trials import replay

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_is_what_the_command_prints() -> None:
    command = re.search(r"ridgeline ab --replay (\S+)", README)
    assert command is not None
    report = assemble.report_of(judge(replay.read(ROOT / command[1]), policy.load()), [], title="recorded trials")
    assert terminal.render(report, 100).strip() in README


def test_the_table_of_results_is_made_from_the_records() -> None:
    table = scoreboard.table(ROOT / "results").strip()
    assert table in README, "run `python -m ci.study.scoreboard` and paste what it prints"


def test_the_table_of_both_regimes_is_made_from_the_records() -> None:
    table = scoreboard.sustained_table(ROOT / "results").strip()
    assert table in README, "run `python -m ci.study.scoreboard --sustained` and paste what it prints"


def test_the_curve_is_made_from_the_trials() -> None:
    command = re.search(r"python -m ci.study.curve (\S+?)`", README)
    assert command is not None
    assert curve.main([str(ROOT / command[1])]).strip() in README, "run the command and paste what it prints"


def test_what_was_checked_is_counted_from_the_checks() -> None:
    counted = verify.main([str(ROOT / "results/checks/h200.jsonl.gz")]).splitlines()[-1]
    assert counted.split(";")[0] in README, f"the checks say: {counted}"


def test_links_and_paths_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (ROOT / target).exists(), target
