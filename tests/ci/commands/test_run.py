"""`ridgeline run --resume`: what is measured when a trial file is taken up again."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.bringup import STEPS
from benchmarks.reach import Reach
from ci import harness
from ci.commands import doctor as bringup
from ci.commands import measuring
from ci.commands import run as module
from ci.commands.doctor import show
from ci.git.repository import Commit, LocalCheckout
from ci.harness import ChildExit, MeasurePlan
from tests.ci import made_trials
from tests.ci.made_trials import HEAD, trial
from tests.kit import ridgeline


@pytest.fixture
def planned(monkeypatch):
    """The plans that would be measured; nothing is."""
    plans = []

    def measure(checkouts, plan, out, console):
        plans.append(plan)
        return 0

    monkeypatch.setattr(harness, "measure", measure)
    monkeypatch.setattr(module, "query", lambda *arguments: {"kernels": [{"kernel": "gemm"}, {"kernel": "norm"}]})
    return plans


ANOTHER = trial(trees={"head": made_trials.tree("c" * 40)})


@pytest.mark.parametrize(
    ("there", "measured"),
    [
        ([], [((), 0, 3)]),
        ([trial(), trial(number=1)], [(("gemm",), 2, 1)]),
        ([trial()], [(("norm",), 0, 1), (("gemm", "norm"), 1, 2)]),
        ([ANOTHER], [((), 0, 3)]),
        ([trial(number=number) for number in range(3)], []),
    ],
    ids=(
        "no file",
        "the first trial says what there is to measure",
        "the first trial may be incomplete",
        "trials of another commit do not count",
        "a whole file starts nothing",
    ),
)
def test_what_is_there_is_not_measured_again(tmp_path, planned, there, measured):
    out = made_trials.write(tmp_path / "t.jsonl", *there)
    done = ridgeline("run", "--commit", HEAD, "--commit-date", "0", "--out", out, "--trials", "3", "--resume")
    assert done.exit_code == 0
    assert [(tuple(plan.kernels), plan.first_trial, plan.trials) for plan in planned] == measured


def test_a_new_file_is_measured_from_the_first_trial_on(tmp_path, planned):
    asked = ("--commit", HEAD, "--commit-date", "0", "--out", tmp_path / "t.jsonl", "--first-trial", "6")
    assert ridgeline("run", *asked, "--resume").exit_code == 0
    assert [(plan.first_trial, plan.trials) for plan in planned] == [(6, 3)]


def test_a_folder_without_kernels_is_refused(tmp_path):
    """Else the harness's own would be measured under the commit's name."""
    words = ["run", f"--tree={tmp_path}", f"--commit={'a' * 40}", f"--out={tmp_path}/t.jsonl", "--dry-run"]
    done = ridgeline(*words)
    assert done.exit_code == 3
    assert f"--tree {tmp_path} has none of the packages with kernels that it lists (kernels)" in done.output
    (tmp_path / "ridgeline.toml").write_text('kernels = ["shop.perf"]\n')
    assert "(shop.perf)" in ridgeline(*words).output
    (tmp_path / "src/shop/perf").mkdir(parents=True)
    assert ridgeline(*words).exit_code == 0


# The verb: it shows the report of the measuring program, and passes on its exit code.


def invoke(folder, *arguments):
    return ridgeline("bringup", "--out", str(folder / "report.json"), *arguments)


@pytest.mark.slow
def test_a_bring_up_of_this_machine(tmp_path):
    done = invoke(tmp_path, "--only", "rccl", "--only", "fences")
    assert done.exit_code == 0, done.output
    assert "2 pass, 1 not here, 0 fail" in done.stdout
    assert "fences: no GPU" in done.stdout


@pytest.mark.parametrize(("ended", "code"), [(1, 1), (0, 0), (3, 3), (-6, 3), (2, 3)])
def test_the_exit_code_is_that_of_the_steps(tmp_path, monkeypatch, ended, code):
    empty = {"machine": {"kind": "cpu", "count": 1, "market_name": None, "device": "x", "arch": "cpu"}, "steps": []}
    (tmp_path / "report.json").write_text(json.dumps({**empty, "environment": {}, "seconds": 1.0}))
    monkeypatch.setattr(bringup, "follow", lambda *_: ChildExit(ended, ("why",)))
    assert invoke(tmp_path).exit_code == code


def test_the_steps_are_those_of_the_measuring_program(tmp_path):
    assert tuple(STEPS) == bringup.BRINGUP_STEPS
    done = invoke(tmp_path, "--only", "heaps")
    assert done.exit_code == 3
    assert "'heaps' is not one of 'heap', 'fences', 'rccl', 'backend'" in done.stderr


def test_an_interruption_says_where_the_report_is(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(bringup, "follow", interrupted)
    done = invoke(tmp_path)
    assert done.exit_code == 130
    assert re.search("report.json has what is finished; `ridgeline[^`]*` begins anew", done.stderr)


# What a change of nothing but tables of tuned knobs measures.

WARPS = {"base": {"small": 8, "large": 8, "nightly": 8}, "head": {"small": 8, "large": 4, "nightly": 16}}
PLAN = MeasurePlan(kernels=("rms", "norm"))
TABLES = Reach(differing=dict.fromkeys(PLAN.kernels, ("perf/tuned.toml",)))


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The architectures that were asked for."""
    arches = []

    def query(verb, *words):
        options = dict(zip(words[::2], words[1::2], strict=True))
        arches.append(options["--arch"])
        knobs = WARPS[Path(options["--tree"]).name if options["--kernel"] == "rms" else "base"]
        about = {"kernel": options["--kernel"], "backend": "triton"}
        return {"entries": [{**about, "case": case, "config": {"num_warps": warps}} for case, warps in knobs.items()]}

    for role, rows in WARPS.items():
        (tmp_path / role / "perf").mkdir(parents=True)
        table = f"[gfx950.large]\nnum_warps = {rows['large']}\n[sm_90.x]\na = 1\n"
        (tmp_path / role / "perf/tuned.toml").write_text(table)
    monkeypatch.setattr(measuring, "query", query)
    monkeypatch.setattr(measuring, "machine_kind", lambda: "cpu")
    return arches


def plan_with_rows(folder, reach, plan=PLAN):
    sides = [LocalCheckout(role, folder / role, Commit("1" * 40, 0, "")) for role in WARPS]
    return measuring.with_changed_rows(plan, reach, sides, Console(file=io.StringIO()))


def test_the_cases_whose_rows_changed_are_measured_of_whatever_tier(tmp_path, asked):
    found = plan_with_rows(tmp_path, TABLES)
    assert (found.tier, found.cases) == ("sweep", ("large", "nightly"))
    assert set(asked) == {"gfx942", "gfx950", "sm_90"}, "a machine without a GPU asks for every target"


@pytest.mark.parametrize(
    ("reach", "plan"),
    [
        (Reach(differing={"rms": ("perf/tuned.toml", "perf/rms.py")}), PLAN),
        (Reach(unknown="nobody knows"), PLAN),
        (TABLES, MeasurePlan(kernels=("rms",), cases=("small",))),
    ],
)
def test_other_changes_are_measured_as_ever(tmp_path, asked, reach, plan):
    assert plan_with_rows(tmp_path, reach, plan) == plan
    assert not asked


def test_rows_that_no_case_uses_leave_the_plan(tmp_path, asked, monkeypatch):
    monkeypatch.setitem(WARPS, "head", WARPS["base"])
    assert plan_with_rows(tmp_path, TABLES) == PLAN


# How a person reads a bring-up: what failed is last, with what to do; what is alike is said once.


def row(name, status, text, next_step=""):
    return {"name": name, "status": status, "text": text, "next_step": next_step, "numbers": {}, "detail": ""}


def step(name, *rows):
    return {"step": name, "status": "pass", "seconds": 1.0, "at": "2026-11-22T08:00:00+00:00", "rows": list(rows)}


NO_GPU = "Triton compiles for GPUs only"
DOCUMENT = {
    "machine": {"kind": "gpu", "count": 2, "market_name": "H200 SXM", "device": "NVIDIA H200", "arch": "sm_90"},
    "environment": {"torch": "2.11.0", "triton": "3.6.0", "hip": None, "cuda": "13.0"},
    "seconds": 84.2,
    "steps": [
        step("git", row("git", "pass", "git version 2.39.5, 7 commits up to HEAD")),
        step("heap", row("allocate", "fail", "failed: no\x1b[31m peers", "check IOMMU"), row("write", "pass", "ok")),
        step("package/aiter", row("aiter", "not here", "not installed")),
        step("package/flydsl", row("flydsl", "not here", "not installed")),
        step(
            "backend/gemm",
            row("gemm/blas", "pass", "baseline, right in m16 (error 1.0e-03)"),
            row("gemm/triton", "not here", f"backend, m16: {NO_GPU}"),
            row("gemm/torch", "pass", "backend, right in m16 (error 1.0e-03)"),
        ),
        step("backend/all_gather", row("all_gather/gluon", "not here", f"backend, w2: {NO_GPU}")),
    ],
}  # fmt: skip

SHOWN = """\
ok     2 x H200 SXM (sm_90), torch 2.11.0, triton 3.6.0, cuda 13.0
ok     git: git version 2.39.5, 7 commits up to HEAD
ok     heap: write: ok
ok     backend/gemm: gemm/blas: baseline, right in m16 (error 1.0e-03)
ok     backend/gemm: gemm/torch: backend, right in m16 (error 1.0e-03)
note   package/aiter: not installed
note   package/flydsl: not installed
note   backend/gemm: gemm/triton: backend, m16: Triton compiles for GPUs only
note   backend/all_gather: all_gather/gluon: backend, w2: Triton compiles for GPUs only
error  heap: allocate: failed: no[31m peers
       -> check IOMMU
"""


def printed_at(width):
    stream = io.StringIO()
    show(bringup.bringup_findings(DOCUMENT), Console(file=stream, width=width, highlight=False))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def test_what_failed_in_a_bringup_is_last():
    assert printed_at(120) == SHOWN
    assert printed_at(200) == SHOWN
