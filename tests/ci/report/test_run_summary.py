"""Where the seconds of a run went, and what a bring-up shows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ci.report import run_summary
from ci.report.run_summary import minutes, seconds_of
from ci.trials.trial import Trial
from tests.ci.made_trials import failed, parsed, trial

ROOT = Path(__file__).resolve().parents[3]


# Where the seconds of a run went: all of them, in the order of a trial, as a sentence, a table and JSON.


def lasting(**more: object) -> Trial:
    return parsed({**trial(), **more})


SPENT = {"rounds": 2.0, "checks": 1.0, "start": 0.5}


def test_the_seconds_of_all_trials_add_up_to_those_of_the_command() -> None:
    found = seconds_of([lasting(spent_s=SPENT, ahead_s=4.0), lasting(spent_s=SPENT, ahead_s=0.0)], whole_s=15.0)
    assert found
    assert list(found.phases) == ["rounds", "checks", "start", "before the trials", "outside of measuring"]
    assert (found.whole_s, found.measuring_s) == (15.0, 4.0)
    most = "before the trials 4.0 s, outside of measuring 4.0 s, checks 2.0 s"
    assert found.sentence() == f"measuring: 4.0 of 15.0 s (27 %); most of the rest: {most}"
    assert found.as_json()["measuring_s"] == 4.0


def test_trials_that_do_not_say_it_have_no_table() -> None:
    assert seconds_of([]) is None
    assert seconds_of([lasting(), lasting(spent_s=SPENT)]) is None


def test_an_operator_that_this_machine_cannot_measure_takes_no_phase_from_the_others() -> None:
    nothing = {"m16": {"head/triton": failed("skipped"), "head/blas": failed("unsupported")}}
    found = seconds_of(
        [
            lasting(spent_s=SPENT, ahead_s=1.0),
            parsed({**trial(nothing, 1, kernel="reduce_scatter"), "spent_s": {}, "ahead_s": 2.0}),
            parsed({**trial(nothing, 2, kernel="all_to_all"), "spent_s": {}, "ahead_s": 0.0}),
        ],
        whole_s=8.0,
    )
    assert found
    assert found.phases == {**SPENT, "before the trials": 3.0, "outside of measuring": 1.5}
    assert found.whole_s == 8.0
    assert found.sentence().startswith("measuring: 2.0 of 8.0 s (25 %)")


def test_minutes() -> None:
    assert [minutes(one) for one in (3.4, 99.0, 170.0)] == ["3 s", "99 s", "3 min"]


# How a person reads a bring-up: what failed is last, with what to do; what is alike is said once.


def row(name: str, status: str, text: str, next_step: str = "") -> dict[str, Any]:
    return {"name": name, "status": status, "text": text, "next_step": next_step, "numbers": {}, "detail": ""}


def step(name: str, *rows: dict[str, Any]) -> dict[str, Any]:
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
2 x H200 SXM (sm_90), torch 2.11.0, triton 3.6.0, cuda 13.0

pass
  git: git version 2.39.5, 7 commits up to HEAD
  heap: write: ok
  backend/gemm: gemm/blas: baseline, right in m16 (error 1.0e-03)
  backend/gemm: gemm/torch: backend, right in m16 (error 1.0e-03)

not here
  package/aiter: not installed
  package/flydsl: not installed
  backend/gemm: gemm/triton: backend, m16: Triton compiles for GPUs only
  backend/all_gather: all_gather/gluon: backend, w2: Triton compiles for GPUs only

fail
  heap: allocate: failed: no[31m peers
  -> check IOMMU

4 pass, 4 not here, 1 fail; 84 s
"""


def printed_at(width: int) -> str:
    stream = io.StringIO()
    run_summary.show_bringup(DOCUMENT, Console(file=stream, width=width, highlight=False))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def test_what_failed_is_last() -> None:
    assert printed_at(120) == SHOWN
    assert printed_at(200) == SHOWN


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_terminal_loses_no_word(width: int) -> None:
    assert sorted(printed_at(width).split()) == sorted(SHOWN.split())
    assert max(map(len, printed_at(width).splitlines()[1:])) <= width
