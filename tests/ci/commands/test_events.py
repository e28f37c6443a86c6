"""`ridgeline events`, `ack`, `accept`: what they print, write and leave with."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from ci.history import reading
from ci.history.analysis import analyse
from tests.ci.history.made import commit, facts, frame, pair
from tests.kit import ridgeline

HOSTILE = "\u202e<b>x</b>\x1b[31m"


@pytest.fixture(autouse=True)
def made(tmp_path, monkeypatch):
    """Records with a regression, a library that got faster and something hostile that was fixed."""
    lines = [
        *pair(1, 60, ours={30: 1.05}),
        *pair(5, 60, theirs={40: 0.9}, kernel="bias"),
        *pair(9, 60, ours={10: 1.2, 20: 1 / 1.2}, kernel=HOSTILE, machine="h200x1-00000002"),
    ]
    whole = frame(lines)
    monkeypatch.setattr(reading, "history", lambda results, code, decisions: analyse(whole, None, facts(60), decisions))
    monkeypatch.chdir(tmp_path)


def document(*arguments):
    return json.loads(ridgeline("events", "--json", *arguments).stdout)["events"]


def regression():
    return next(one["id"] for one in document() if one["state"] == "open" and one["kind"] == "kernel")


def test_an_open_regression_leaves_with_1_and_is_told_first():
    done = ridgeline("events")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "1 regression open"
    assert lines[1].startswith(f"{regression()}  gemm, triton slower: +4.")
    assert lines[1].endswith("], small on h200x1-00000001")
    assert lines[2].strip() == f"since {commit(30)[:8]} change 30 (#30) (A. Author)"
    assert "looked at 6 series with 360 points of 60 commits" in done.stdout
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout


def test_filters():
    assert {one["kind"] for one in document("--open")} == {"kernel", "library"}
    assert {one["state"] for one in document("--machine", "h200x1-00000002")} == {"back"}
    unknown = ridgeline("events", "--machine", "mi300x")
    assert "'mi300x' has no event; machines that have: h200x1-00000001" in unknown.stderr


def test_ack_and_accept_write_what_is_reviewed():
    name = regression()
    told = ("--owner", "A. Author", "--reason", "the tile shape", "--link", "https://example.org/1")
    dry = ridgeline("ack", name[:4], *told, "--dry-run")
    assert "would write ci/events.toml" in dry.stdout
    assert not Path("ci/events.toml").exists()
    assert ridgeline("ack", name[:4], *told).exit_code == 0
    (entry,) = tomllib.loads(Path("ci/events.toml").read_text())["event"].values()
    assert (entry["state"], entry["owner"], entry["first_bad"]) == ("acknowledged", "A. Author", commit(30))
    assert ridgeline("events").exit_code == 0
    (event,) = (one for one in document("--open") if one["id"] == name)
    assert (event["state"], event["owner"], event["link"]) == ("open", "A. Author", "https://example.org/1")
    assert "open, acknowledged by A. Author: the tile shape" in ridgeline("events").stdout
    assert "1 regression open" in ridgeline("events").stdout
    assert ridgeline("accept", name, "--reason", "worth it").exit_code == 0
    (event,) = (one for one in document() if one["id"] == name)
    assert (event["state"], event["reason"], event["owner"]) == ("accepted", "worth it", "A. Author")
    Path("ci/events.toml").unlink()
    assert ridgeline("events").exit_code == 1
    (event,) = (one for one in document() if one["id"] == name)
    assert (event["state"], event["owner"]) == ("open", "")


def test_an_unknown_id_names_the_nearest():
    name = regression()
    done = ridgeline("ack", name[:-1] + "x", "--owner", "A. Author")
    assert done.exit_code == 3
    assert f"the nearest: {name}" in done.stderr
    assert ridgeline("ack", name).exit_code == 3


def test_a_damaged_file_is_said_and_kept():
    Path("ci").mkdir()
    damaged = "[event.0123]\nstate = 'open'\ndate = 2026-11-22\n"
    Path("ci/events.toml").write_text(damaged)
    for arguments in (("events",), ("ack", "0", "--owner", "x")):
        done = ridgeline(*arguments)
        assert (done.exit_code, "10 hex digits" in done.stderr) == (3, True)
    assert Path("ci/events.toml").read_text() == damaged
