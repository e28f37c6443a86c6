"""How a person reads a bring-up: what failed is last, with what to do; what is alike is said once."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from ci.report import run_summary


def row(name: str, status: str, text: str, next_step: str = "") -> dict[str, Any]:
    return {"name": name, "status": status, "text": text, "next_step": next_step, "numbers": {}, "detail": ""}


def step(name: str, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"step": name, "status": "pass", "seconds": 1.0, "at": "2026-11-22T08:00:00+00:00", "rows": list(rows)}


NO_GPU = "Triton compiles for GPUs only"
DOCUMENT = {
    "machine": {"kind": "gpu", "count": 2, "market_name": "H200 SXM", "device": "NVIDIA H200", "arch": "sm_90"},
    "environment": {"torch": "2.11.0", "triton": "3.6.0", "hip": None, "cuda": "13.0"},
    "seconds": 84.2,
    "resumed": ["git"],
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
  git           git version 2.39.5, 7 commits up to HEAD
  heap: write   ok
  backend/gemm  right: blas, torch

not here
  not installed
      package/aiter, package/flydsl
  Triton compiles for GPUs only
      gemm/triton, all_gather/gluon

fail
  heap: allocate
      failed: no[31m peers
      -> check IOMMU

4 pass, 4 not here, 1 fail; 84 s, 1 result known from before
"""


def shown(width: int) -> str:
    stream = io.StringIO()
    run_summary.show_bringup(run_summary.read(DOCUMENT), Console(file=stream, width=width, highlight=False))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def test_what_failed_is_last_and_what_is_alike_is_said_once() -> None:
    assert shown(120) == SHOWN
    assert shown(80) == SHOWN


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_terminal_loses_no_word(width: int) -> None:
    assert sorted(shown(width).split()) == sorted(SHOWN.split())
    assert max(map(len, shown(width).splitlines()[1:])) <= width
