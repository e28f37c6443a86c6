"""What is made in a process of its own is what would be made here, whatever becomes of that process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from dashboards import build, sources
from dashboards.history import made_apart as apart
from tests.dashboards import large_records, synthetic

HERE = os.getpid()


def test_a_value_is_made_once_and_elsewhere() -> None:
    made = apart(lambda: (os.getpid(), object()))
    assert made()[0] != HERE
    assert made() is made()


def test_on_one_core_it_is_made_here_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert apart(os.getpid)() == HERE


def test_what_making_it_raised_is_raised_where_it_is_asked_for() -> None:
    def fails() -> None:
        raise build.SiteError("no site; give another folder")

    made = apart(fails)
    with pytest.raises(build.SiteError, match="give another folder"):
        made()


def test_a_killed_process_only_costs_time() -> None:
    def killed() -> int:
        if os.getpid() != HERE:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    assert apart(killed)() == HERE


@pytest.mark.slow
def test_a_site_with_its_history_made_apart_is_the_same_site_with_one_more_commit_too(tmp_path: Path) -> None:
    """That of a folder whose first commits were there before, built beside; and that of all commits, built alone."""
    frame = synthetic.large(6, 70)
    frame.loc[(frame["backend"] == "triton") & (frame["date"] > frame["date"].iloc[240]), "seconds"] *= 1.3
    last = frame["commit"] == frame["commit"].iloc[-1]
    results = {name: tmp_path / name / "results" for name in ("grown", "whole")}
    large_records.add(frame[~last].reset_index(drop=True), results["grown"])
    build.build(results["grown"], tmp_path / "site", meanwhile=apart)
    large_records.add(frame[last].reset_index(drop=True), results["grown"])
    large_records.add(frame, results["whole"])
    found = [files(build.build(results["grown"], tmp_path / "site", meanwhile=apart))]
    found.append(files(build.build(results["whole"], tmp_path / "alone")))
    assert found[0] == found[1]
    assert b"first_bad" in found[0]["data/views/events.js"], "there is an event to show"


def files(site: Path) -> dict[str, bytes]:
    return {path.relative_to(site).as_posix(): path.read_bytes() for path in site.rglob("*") if path.is_file()}


def test_kept_numbers_are_read_without_a_copy_and_nan_stays_nan(tmp_path: Path) -> None:
    rows = synthetic.large(6, 3)
    rows.loc[::4, "seconds"] = np.nan
    sources.save(tmp_path / "kept", "all", rows, {})
    count, past, _ = sources.load(tmp_path / "kept", ["", "all"])
    assert (count, past is not None) == (1, True)
    assert not past["seconds"].to_numpy().flags.writeable, "it is the file's own memory"
    np.testing.assert_array_equal(past["seconds"], rows["seconds"])
    assert past.astype(object).where(past.notna(), "").equals(rows.astype(object).where(rows.notna(), ""))
