"""A task and the last job without Slurm: what is kept of attempts, what is submitted again, how a job ends."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import pytest

from ci.slurm.jobs import ROUNDS, JobSpec, State, attempt_lines, missing_tasks
from ci.slurm.on_nodes import append_new_lines, end_job, run_task

PROGRAM = """
import sys
out = sys.argv[sys.argv.index("--out") + 1]
known = open(out).read()
open(out, "a").write(f"line {known.count(chr(10))}\\n")
sys.exit(CODE)
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs" / "20261128T041935.123456-run-e716"
    folder.mkdir(parents=True)
    return folder


def write(job: Path, *, code: int = 0, **fields: object) -> JobSpec:
    """Describe the job as `submit` does."""
    fields = {"publishes": True, **fields}
    spec = JobSpec("run", ("-c", PROGRAM.replace("CODE", str(code))), str(job), "mi300x", **fields)  # type: ignore[arg-type]
    (job / "job.json").write_text(json.dumps(dataclasses.asdict(spec)))
    return spec


def result(job: Path) -> dict[str, object]:
    return dict(json.loads((job / "result.json").read_text()))


def test_an_attempt_goes_on_where_earlier_ones_ended_in_a_file_of_its_own(job: Path) -> None:
    write(job)
    (job / "0-killed.jsonl").write_text("line 0\nline 1\nli")
    assert run_task(job, 0) == 0
    assert attempt_lines(job, 0) == [b"line 0", b"line 1", b"line 2"]
    assert (job / "0-killed.jsonl").read_text() == "line 0\nline 1\nli", "its writer may still be at it"
    assert missing_tasks(job, write(job, tasks=2)) == [1]


@pytest.mark.parametrize(("code", "ended"), [(0, True), (1, True), (2, True), (3, False), (130, False)])
def test_a_verdict_is_the_end_of_a_task_and_an_error_is_none(job: Path, code: int, ended: bool) -> None:
    spec = write(job, code=code)
    assert run_task(job, 0) == code
    assert (missing_tasks(job, spec) == []) is ended


def test_missing_tasks_are_submitted_again_a_bounded_number_of_times(job: Path) -> None:
    write(job, tasks=5)
    for task in (0, 3):
        (job / f"ended-{task}").write_text("0\n")
    for number in range(ROUNDS):
        assert end_job(job) == 0
        assert ((job / "again").read_text(), (job / "round").read_text()) == ("1-2,4", f"{number + 1}\n")
    (job / "1-x.jsonl").write_text("line\n")
    assert end_job(job) == 3
    assert (result(job)["state"], result(job)["exit_code"]) == (State.INCOMPLETE, 3)
    assert f"tasks 1-2,4 of 5 are missing after {ROUNDS + 1} attempts: `ridgeline jobs submit" in str(result(job))
    assert (job / "trials.jsonl").read_text() == "line\n", "what there is, is kept"


def test_the_union_has_a_line_once_and_running_the_last_job_again_changes_nothing(job: Path, tmp_path: Path) -> None:
    write(job, tasks=2, out=str(tmp_path / "all.jsonl"))
    for name, text in {"0-a": "x\ny\n", "0-b": "x\ny\nz\n", "1-c": "w\nhalf"}.items():
        (job / f"{name}.jsonl").write_text(text)
    for task in (0, 1):
        (job / f"ended-{task}").write_text(f"{task}\n")
    for _ in range(2):
        assert end_job(job) == 1, "the worst verdict of its tasks"
        assert (job / "trials.jsonl").read_text() == "x\ny\nz\nw\n"
        assert (tmp_path / "all.jsonl").read_text() == "x\ny\nz\nw\n"
    assert result(job) == {"state": "done", "exit_code": 1, "reason": ""}


@pytest.mark.parametrize(
    ("finish", "code", "wanted"), [("-c|import sys; sys.exit(2)", 0, 2), ("-c|pass", 1, 1), ("-c|pass|--replay", 1, 0)]
)
def test_what_comes_last_decides_where_it_judges_all_trials(job: Path, finish: str, code: int, wanted: int) -> None:
    write(job, finish=tuple(finish.split("|")))
    (job / "0-a.jsonl").write_text("x\n")
    (job / "ended-0").write_text(f"{code}\n")
    assert end_job(job) == wanted


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_lines_are_appended_once(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "new" / f"all.{suffix}"
    for lines in ([b"a", b"b"], [b"b", b"c"], [b"a"]):
        append_new_lines(path, lines)
    content = path.read_bytes()
    assert (gzip.decompress(content) if suffix.endswith("gz") else content) == b"a\nb\nc\n"
