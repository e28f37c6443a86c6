"""Nodes drained from our jobs: a file each, whoever writes it, whatever it holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.pools import drained
from ci.pools.drained import Drained
from ci.pools.types import PoolsError, Site

NODE = Drained("gpu-07.cluster", "3 uncorrectable\nECC errors", "2026-11-22T10:00:00+00:00", "A. Author")


def test_a_node_is_drained_until_it_is_resumed(tmp_path: Path) -> None:
    drained.drain(NODE, tmp_path, dry_run=True)
    assert list(tmp_path.iterdir()) == []
    drained.drain(NODE, tmp_path)
    said = "gpu-07.cluster is drained from our jobs since 2026-11-22T10:00:00+00:00 by A. Author: "
    assert drained.why("gpu-07.cluster", tmp_path) == said + "3 uncorrectable ECC errors"
    assert drained.why("gpu-08", tmp_path) == ""
    drained.drain(Drained("gpu-07.cluster", "link down", NODE.since, "B"), tmp_path)
    assert [one.reason for one in drained.drained(tmp_path).values()] == ["link down"]
    assert drained.resume("gpu-07.cluster", tmp_path, dry_run=True)
    assert drained.resume("gpu-07.cluster", tmp_path)
    assert not drained.resume("gpu-07.cluster", tmp_path)
    assert drained.drained(tmp_path / "absent") == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"reason": 1}', "\x00"])
def test_a_broken_file_drains_all_the_same(tmp_path: Path, text: str) -> None:
    (tmp_path / "n1.json").write_text(text)
    assert "cannot be read; remove it to resume the node" in drained.why("n1", tmp_path)
    assert drained.drained(tmp_path)["n1"].node == "n1"


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", "-a", ".hidden", "a\nb", "x" * 300])
def test_what_is_no_name_of_a_node_is_refused(tmp_path: Path, name: str) -> None:
    for act in (lambda: drained.drain(Drained(name, "r", "s", "w"), tmp_path), lambda: drained.resume(name, tmp_path)):
        with pytest.raises(PoolsError, match="is not the name of a node"):
            act()
    assert list(tmp_path.iterdir()) == []


def test_a_reason_is_needed_and_bounded(tmp_path: Path) -> None:
    with pytest.raises(PoolsError, match="no reason to drain 'n1'; say it with --reason"):
        drained.drain(Drained("n1", " ", "s", "w"), tmp_path)
    drained.drain(Drained("n1", "x" * 10_000, "s", "w"), tmp_path)
    assert len(json.loads((tmp_path / "n1.json").read_text())["reason"]) == drained.LONGEST


def test_where_the_files_are(tmp_path: Path) -> None:
    assert drained.folder_of(Site("c", shared="/shared/r")) == Path("/shared/r/drained")
    assert drained.folder_of(Site("c"), {"HOME": "/home/a"}) == Path("/home/a/.local/state/ridgeline/drained")
    assert drained.folder_of(None, {"XDG_STATE_HOME": "/s"}) == Path("/s/ridgeline/drained")
