"""Check runs and their annotations: the verdict on the commit, and the lines that are to be looked at."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from click.testing import CliRunner
from werkzeug import Response

from ci.__main__ import main
from ci.github import orders
from ci.github.client import GitHub, GitHubError
from ci.github.comment import Annotation, ChangedLines, CheckRun, changed_in, changed_lines, post_check, remarks
from ci.github.orders import StartError
from ci.judging.types import CaseVerdict, Judgement, Verdict
from ci.report.model import Report
from tests.ci.report import samples
from tests.standins.github import DROP, StandIn

SHA = "0123456789abcdef0123456789abcdef01234567"
ROOT = Path(__file__).parents[3]
PATCH = """@@ -10,4 +12,6 @@ def config(case):
 context
-old
+new
+newer
 context
+later
@@ -90 +95 @@
-a
+b
\\ No newline at end of file"""


def check(number: int = 0, verdict: Verdict = Verdict.SLOWER, summary: str = "## x") -> CheckRun:
    notes = [Annotation(f"kernels/f{i}.py", 1, 1, "failure", "t", "m") for i in range(number)]
    return CheckRun("ridgeline / mi300x", SHA, verdict, "gemm is slower", summary, notes, "https://x/run")


# ---- the check run ----


@pytest.mark.parametrize(
    ("verdict", "wanted"),
    [
        (Verdict.SLOWER, "failure"),
        (Verdict.BROKEN, "failure"),
        (Verdict.SAME, "success"),
        (Verdict.FASTER, "success"),
        (Verdict.CANNOT_TELL, "neutral"),
        (Verdict.NOT_COMPARABLE, "neutral"),
    ],
)
def test_the_verdict_is_the_conclusion(github: StandIn, client: GitHub, verdict: Verdict, wanted: str) -> None:
    assert post_check(client, check(verdict=verdict)).startswith("https://")
    (made,) = github.checks
    assert (made["name"], made["head_sha"], made["status"], made["conclusion"]) == (
        "ridgeline / mi300x",
        SHA,
        "completed",
        wanted,
    )
    assert made["output"]["title"] == "gemm is slower"
    assert made["details_url"] == "https://x/run"


@pytest.mark.parametrize("number", [0, 50, 51, 130])
def test_annotations_come_in_batches_of_fifty(github: StandIn, client: GitHub, number: int) -> None:
    for _ in range(2):
        post_check(client, check(number))
    (made,) = github.checks
    assert [note["path"] for note in made["annotations"]] == [f"kernels/f{i}.py" for i in range(number)]


@pytest.mark.parametrize("fault", [Response("", 502), DROP])
@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_lost_answer_doubles_nothing(
    github: StandIn, client: GitHub, method: str, after: bool, fault: object
) -> None:
    github.fault(method, "check-runs", fault, after=after)
    post_check(client, check(120))
    (made,) = github.checks
    assert len(made["annotations"]) == 120


def test_a_summary_is_cut_to_what_is_allowed(github: StandIn, client: GitHub) -> None:
    post_check(client, check(summary="## x\n\n" + "\n\n".join(["long " * 400] * 60) + "\n\nend"))
    assert len(github.checks[0]["output"]["summary"]) <= 65_535


def test_another_verdict_is_another_check_run(github: StandIn, client: GitHub) -> None:
    post_check(client, check())
    post_check(client, check(verdict=Verdict.SAME))
    assert [one["conclusion"] for one in github.checks] == ["failure", "success"]


# ---- which lines ----


@pytest.mark.parametrize(
    ("patch", "lines"),
    [
        (PATCH, (13, 14)),
        ("@@ -0,0 +1,3 @@\n+a\n+b\n+c", (1, 3)),
        ("@@ -5,2 +4,0 @@\n-a\n-b", (4, 4)),
        ("@@ -1,2 +0,0 @@\n-a\n-b", (1, 1)),
        ("", (1, 1)),
        ("@@ -1 +7 @@\n-a\n+b\n\\ No newline at end of file", (7, 7)),
        ("Binary files differ", (1, 1)),
    ],
)
def test_the_first_lines_that_a_patch_adds(patch: str, lines: tuple[int, int]) -> None:
    assert changed_lines("f.py", patch) == ChangedLines("f.py", *lines)


def test_the_changed_lines_of_a_moved_kernel(github: StandIn, client: GitHub) -> None:
    github.pull(7, SHA)
    github.files_of[7] = [
        {"filename": "kernels/gemm/config.py", "patch": PATCH, "status": "modified"},
        {"filename": "kernels/gemm_all_scatter/config.py", "patch": PATCH, "status": "modified"},
        {"filename": "kernels/gemm/big.bin", "status": "modified"},
        {"filename": "README.md", "patch": PATCH, "status": "modified"},
    ]
    found = remarks(samples.slower(), changed_in(client, SHA, [7]), ROOT)
    assert [(one.path, one.start_line, one.end_line, one.annotation_level) for one in found] == [
        ("kernels/gemm/big.bin", 1, 1, "failure"),
        ("kernels/gemm/config.py", 13, 14, "failure"),
        ("kernels/gemm/big.bin", 1, 1, "notice"),
        ("kernels/gemm/config.py", 13, 14, "notice"),
    ]
    assert found[0].title == "SLOWER: gemm / triton: 3 shapes slower together, +2.47 % [+2.15, +2.79]"
    assert found[0].message.splitlines()[0] == "gemm/triton/up_m1024: +3.10 % [+2.90, +3.30]"


@pytest.mark.parametrize(
    ("kernel", "path", "text"),
    [
        ("gemm", "kernels/gemm/__init__.py", '"gemm"'),
        ("all_gather", "kernels/all_gather/__init__.py", 'Kernel("all_gather"'),
        ("grouped_gemm_wgrad", "kernels/grouped_gemm/__init__.py", ""),
    ],
)
def test_a_kernel_that_was_not_touched_is_shown_where_it_is_declared(kernel: str, path: str, text: str) -> None:
    case = CaseVerdict(f"{kernel}/triton/a", kernel, "triton", Verdict.BROKEN, evidence=("it hangs",))
    (one,) = remarks(Report(Judgement(Verdict.BROKEN, "why", (case,))), [ChangedLines("README.md")], ROOT)
    assert one.path == path
    assert text in (ROOT / path).read_text().splitlines()[one.start_line - 1]
    assert one.message == f"{kernel}/triton/a: it hangs"


def test_kernels_that_are_nowhere_are_shown_nowhere() -> None:
    cases = tuple(CaseVerdict(f"x{i}", f"x{i}/../..", "t", Verdict.BROKEN) for i in range(50))
    assert remarks(Report(Judgement(Verdict.BROKEN, "why", cases)), [], ROOT) == []


def test_a_report_of_thousands_of_kernels_is_bounded() -> None:
    cases = tuple(CaseVerdict(f"gemm_{i}", f"gemm_{i}", "t", Verdict.BROKEN) for i in range(2000))
    found = remarks(Report(Judgement(Verdict.BROKEN, "why", cases)), [], ROOT)
    assert 0 < len(found) <= 200


@pytest.mark.parametrize(("count", "told"), [(25, ["and 5 more, in the report"]), (20, [])])
def test_cases_beyond_a_number_are_counted(count: int, told: list[str]) -> None:
    cases = tuple(dataclasses.replace(samples.SLOWER_CASES[0], case=f"gemm/triton/{i}") for i in range(count))
    (one,) = remarks(Report(Judgement(Verdict.SLOWER, "why", cases)), [], ROOT)
    assert [line for line in one.message.splitlines() if "more, in the report" in line] == told


# A GPU run is started for one commit, on a ref of its own; and a machine that never comes is noticed.


TRUSTED = "0" * 40


@pytest.mark.parametrize("before", [None, "1" * 40])
def test_a_run_has_the_files_of_the_default_branch_and_the_commit_as_data(
    github: StandIn, client: GitHub, before: str | None
) -> None:
    if before:
        github.refs[orders.REF] = before
    assert orders.start(client, SHA, {"pool": "mi300x", "gpus": ""}) == TRUSTED
    assert github.refs[orders.REF] == TRUSTED
    assert github.dispatches == [
        {"workflow": "gpu.yml", "ref": "ridgeline/gpu", "inputs": {"sha": SHA, "pool": "mi300x"}}
    ]


@pytest.mark.parametrize("sha", ["main", "a" * 39, "A" * 40, "", "refs/pull/1/head", "a" * 40 + "\n"])
def test_a_run_is_for_exactly_one_commit(github: StandIn, client: GitHub, sha: str) -> None:
    with pytest.raises(StartError, match="exactly one commit"):
        orders.start(client, sha, {})
    assert github.dispatches == []


def test_a_default_branch_of_that_name_is_refused(github: StandIn, client: GitHub) -> None:
    github.default_branch = orders.REF
    with pytest.raises(StartError, match="ref of their own"):
        orders.start(client, SHA, {})


class Time:
    """Seconds that pass when somebody sleeps; at some moment a machine comes."""

    def __init__(self, standin: StandIn, comes_at: float) -> None:
        self.now, self.comes_at, self.standin = 0.0, comes_at, standin

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.comes_at:
            self.standin.jobs[0] |= {"status": "in_progress", "runner_name": "node-1"}


@pytest.mark.parametrize(("comes_at", "taken"), [(60.0, True), (1e9, False)])
@pytest.mark.parametrize("caller", ["", "GPU / "])
def test_a_machine_that_does_not_come_is_noticed(
    github: StandIn, client: GitHub, caller: str, comes_at: float, taken: bool
) -> None:
    job = github.job(["mi300x"], name=f"{caller}mi300x-8 / Measure")
    time = Time(github, comes_at)
    asked = (client, job["run_id"], "mi300x-8 / Measure", 5, time.sleep, lambda: time.now)
    assert orders.taken(*asked) is taken
    assert time.now <= 300


def test_a_job_that_does_not_exist_yet_may_come(github: StandIn, client: GitHub) -> None:
    run = github.run()["id"]

    def sleep(seconds: float) -> None:
        github.job(["x"], run, "completed", name="late / Measure")

    assert orders.taken(client, run, "late / Measure", 5, sleep, lambda: 0.0)


def test_the_verbs(github: StandIn, environ: None, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner().invoke
    dry = run(main, ["start", SHA, "--dry-run"])
    assert dry.exit_code == 0
    assert github.calls == []
    assert "ridgeline/gpu" in dry.output
    assert run(main, ["start", SHA, "--pool", "mi300x"]).exit_code == 0
    assert run(main, ["start", "main"]).exit_code == 3
    job = github.job(["x"], name="a / Measure")
    absent = run(main, ["wait", "--run", str(job["run_id"]), "--job", "a / Measure", "--minutes", "0"])
    assert (absent.exit_code, absent.output) == (2, "absent: no machine took 'a / Measure' within 0 minutes\n")
    job["status"] = "in_progress"
    monkeypatch.setenv("GITHUB_RUN_ID", str(job["run_id"]))
    assert run(main, ["wait", "--job", "a / Measure", "--minutes", "0"]).exit_code == 0


def test_outside_a_workflow_the_run_must_be_named() -> None:
    with pytest.raises(GitHubError, match="--run ID"):
        orders.of_run({})
