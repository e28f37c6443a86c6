"""The study of planted slow-downs on a CPU: its repository, and its table."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.study import cpu_times


def test_each_change_is_one_commit_on_the_same_base(tmp_path: Path) -> None:
    heads = cpu_times._repository(tmp_path)
    assert list(heads) == list(cpu_times.CHANGES)
    shown = ["git", "-C", str(tmp_path), "diff", "--stat=200"]
    for change, head in heads.items():
        said = subprocess.run([*shown, f"{head}^", head], capture_output=True, text=True, check=True).stdout
        assert said.split()[0] == "work.py", change


def test_a_run_that_took_too_long_is_counted_beside_its_verdict() -> None:
    table = cpu_times.table({("ab", "equal"): [("SAME", 10.0), ("SAME", 30.0), ("CANNOT TELL", 70.0)]})
    assert "| ab | equal | 3 | 2 SAME, 1 CANNOT TELL | 2 | 30 | 70 |" in table
