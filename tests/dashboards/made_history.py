"""Histories made by hand: events and steps on the synthetic records, as `ci.history.analysis.analyse` tells them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ci.history.analysis import History
from ci.history.types import Cause, CommitFacts, Direction, EventKind, EventState, HistoryEvent, Moved, SeriesKey
from ci.records.ledger import Explanation, TriedCause
from ci.stats import Step
from dashboards import build, files
from dashboards.frame import Site, lanes

MI300X, H200 = "mi300x-8-0f3a9c1e", "h200x2-1a2b3c4d"


def order(frame):
    """(commit, date in ms) of a frame, oldest first."""
    rows = frame.drop_duplicates("commit").sort_values("date")
    return [(commit, int(date.timestamp() * 1000)) for commit, date in zip(rows["commit"], rows["date"], strict=True)]


def event(frame, keys, at, ratio, **changes):
    """An event of these series at the commit with number `at`; changes: fields of HistoryEvent."""
    commits = order(frame)
    good, bad = (CommitFacts(*commits[i], "A. Author", f"Commit {i}: tiles of 256", 40 + i) for i in (at - 1, at))
    direction = Direction.SLOWER if ratio > 1 else Direction.FASTER
    step = Step(at, 1e-3, 1e-3 * ratio, ratio, ratio - 0.005, ratio + 0.006, 2e-9)
    moved = tuple(Moved(key, step, direction, "ratio", bad.hash, good.hash) for key in keys)
    plain = HistoryEvent(
        f"{keys[0].kernel}-{at}",
        EventKind.KERNEL,
        direction,
        keys[0].machine,
        moved,
        bad,
        good,
        0,
        ratio,
        ratio - 0.005,
        ratio + 0.006,
        2e-9,
    )
    return dataclasses.replace(plain, **changes)


def history(*events):
    """The history of these events and no other steps."""
    steps = {}
    for one in events:
        for moved in one.moved:
            steps[moved.key] = (*steps.get(moved.key, ()), moved)
    return History(events, steps)


def lively(frame):
    """One of each: three open regressions on two machines (one taken), an improvement, and the rest in their folds."""
    gemm = [SeriesKey(MI300X, "gemm", "triton", case) for case in ("llm_up_m4096", "llm_down_m64")]
    gather = [SeriesKey(H200, "all_gather", "triton", f"w8_{1 << p}k") for p in range(6, 20, 2)]
    norm = [SeriesKey(MI300X, "rms_norm", "gluon", "h8192_t4096")]
    softmax = [SeriesKey(MI300X, "softmax", "triton", "v128k_t512")]
    library = [SeriesKey(MI300X, "gemm", "blas", "llm_up_m4096")]
    proof = Explanation(
        ("gemm/triton/llm_up_m4096",),
        "gemm/triton/llm_up_m4096",
        "proven",
        "kernels/gemm/device.py:95, split: putting it back leaves +0.02 % [-0.05, +0.09] of +8.10 %: proven",
        (
            TriedCause("knob", "group_m", "8 → 4", "no effect", 0.01, 1.0801, 1.0790, 1.0812, 3),
            TriedCause("file", "kernels/gemm/device.py", "", "explains all", 0.98, 1.0002, 0.9995, 1.0009, 3),
        ),
        ("vector registers spilled: 0 → 12",),
        2,
        6,
        61.0,
    )
    versions = (Cause("triton", "3.6.0 → 3.8.0"), Cause("code", "gemm/triton on gfx942: vgpr 128 → 256, spills 0 → 12"))
    commits = order(frame)
    return history(
        event(frame, gemm, 40, 1.081, causes=versions, between=2, explanations=(proof,)),
        event(frame, gather, 33, 1.23, owner="B. Owner", reason="waits for the driver"),
        event(frame, norm, 50, 1.034),
        event(frame, softmax, 45, 0.91, causes=(Cause("code", "loop instructions 40 → 31"),)),
        event(frame, library, 25, 1.05, kind=EventKind.LIBRARY, id="library-25"),
        event(frame, norm, 10, 1.2, state=EventState.BACK, ended_at=CommitFacts(*commits[14], "B. Author", "Fix it")),
        event(frame, softmax, 5, 1.1, state=EventState.ACCEPTED, owner="B. Owner", link="https://example.org/why"),
    )


# Sites of a bare frame, as tests of the pages want them: no folder of records.

NOWHERE = Path("/nonexistent/results")
"""For sites of a bare frame."""


def site_of(frame, history=None, results=NOWHERE, **more):
    """What pages are made of, from a derived frame and a history made by hand."""
    return Site(results, frame, lanes(frame), history or History((), {}), **more)


def written(site, folder, repo=None):
    """The site in a folder."""
    files.write(folder, build.site_files(site, repo), "made")
    return folder


def data_of(site):
    """The data files of a site, by path."""
    return dict(build.data(site))


def found(pieces, kind):
    """Every piece of a kind, however deep."""
    if isinstance(pieces, dict):
        own = [pieces] if pieces.get("kind") == kind and "parts" not in pieces else []  # no column
        return own + [one for value in pieces.values() for one in found(value, kind)]
    return [one for value in pieces for one in found(value, kind)] if isinstance(pieces, (list, tuple)) else []


def texts(pieces):
    """All that pieces say."""
    return "\n".join(str(one["text"]) for one in found(pieces, "text"))
