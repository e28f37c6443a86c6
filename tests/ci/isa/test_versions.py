"""Several versions of Triton: recorded compilations of four versions, installation, the table and its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.isa import versions
from ci.isa.compiled import read
from ci.isa.rules import IsaPolicy
from tests.ci.isa.documents import document, entry

RECORDED = Path(__file__).resolve().parents[2] / "recordings" / "isa"
VERSIONS = ("3.6.0", "3.7.1", "3.8.0", "3.9.0")


@pytest.fixture(scope="module")
def judged():
    """What the four versions made of a 256x256x64 variable-K wgrad tile (tests/benchmarks/isa/tree) and of a Gluon
    all-gather without a hint (gluon_gather.py in that folder at e9f60c1a), for gfx942."""
    documents = {version: read(RECORDED / f"triton-{version}.json") for version in VERSIONS}
    return versions.judge(documents, {"3.5.0": "Triton 3.5.0 cannot be installed: no such version"}, IsaPolicy())


def test_the_two_published_regressions_are_found_and_nothing_else_breaks(judged):
    assert versions.sentences(judged) == [
        "3.7.1 → 3.8.0: sample_wgrad/triton [tile] on gfx942 (g4): vector registers spilled: 0 → 72, "
        "scratch: 0 → 292 B per lane, scratch instructions in loops: 0 → 68",
        "3.8.0 → 3.9.0: sample_gluon_gather/triton [tile] on gfx942 (m1024): stores to remote ranks went from 16 B "
        "to 2 B per lane: 56 global_store_short",
    ]
    assert judged.exit_code == 1


def test_the_table_marks_the_version_that_breaks(judged):
    marks = {row.name: [version for version, cell in row.cells.items() if cell.breaks] for row in versions.rows(judged)}
    assert marks == {"sample_wgrad/triton [tile]": ["3.8.0"], "sample_gluon_gather/triton [tile]": ["3.9.0"]}


def test_the_terminal_leaves_out_what_differs_in_registers_only():
    documents = {
        "1.0": document(entry("alike"), entry("wider"), entry("dies"), entry("gone")),
        "2.0": document(
            entry("alike", vgpr=99), entry("wider", bytes_per_store=16.0, cases=["one"]), entry("dies", status="failed")
        ),
    }
    table = versions.table(versions.judge(documents, {}, IsaPolicy()))
    names = [str(cell) for cell in table.columns[0].cells]
    assert names == ["wider/triton one", "dies/triton one", "gone/triton one"]
    assert str(table.caption).startswith("1 further configuration with no difference but in the number of registers")
    assert str(list(table.columns[3].cells)[1]) == "! failed"


def test_little_lds_is_shown_in_bytes():
    assert versions.cell(entry(lds_bytes=16)).text == "86 regs, 16 B LDS, occ 4, st 8 B"
    assert versions.cell(entry(lds_bytes=67520)).text == "86 regs, 65.94 K LDS, occ 4, st 8 B"


def test_json(judged):
    told = json.loads(json.dumps(versions.as_json(judged)))
    assert [(b["from"], b["to"], b["kernel"]) for b in told["breaks"]] == [
        ("3.7.1", "3.8.0", "sample_wgrad"),
        ("3.8.0", "3.9.0", "sample_gluon_gather"),
    ]
    assert told["rows"][0]["cells"]["3.6.0"]["breaks"] is False


def test_a_configuration_that_a_version_cannot_compile():
    documents = {"1.0": document(entry()), "2.0": document(entry(status="failed", why="LLVM died"))}
    judged = versions.judge(documents, {}, IsaPolicy())
    assert versions.sentences(judged) == ["1.0 → 2.0: gemm/triton on gfx942 (one): does not compile: LLVM died"]
    assert versions.rows(judged)[0].cells["2.0"].text == "failed"


def test_one_version_is_not_a_comparison():
    assert versions.judge({"1.0": document(entry())}, {}, IsaPolicy()).exit_code == 2


def test_versions_are_read_and_checked():
    assert versions.parse_versions("3.6.0, 3.7.1,3.6.0") == ["3.6.0", "3.7.1"]
    assert versions.parse_versions("3.9.0+rocm7.0") == ["3.9.0+rocm7.0"]
    for wrong in ("latest", "3.6.0,--index-url=x", "3", ""):
        with pytest.raises(versions.VersionError, match="give for instance 3.7.1,3.8.0"):
            versions.parse_versions(wrong)


@pytest.fixture
def pip(monkeypatch):
    """Stands for subprocess.run; returns the list of calls, and `fail` to make it fail."""
    calls = []

    class Done:
        returncode, stderr = 0, ""

    def run(command, **_):
        calls.append(command)
        (Path(command[command.index("--target") + 1]) / "triton").mkdir()
        return Done

    monkeypatch.setattr(versions.subprocess, "run", run)
    return calls, Done


def test_a_version_is_installed_once_and_alone(tmp_path, pip):
    place = versions.provide("3.0.0", tmp_path)
    assert place == tmp_path / "3.0.0"
    assert (place / "triton").is_dir()
    assert versions.provide("3.0.0", tmp_path) == place
    calls, _ = pip
    assert len(calls) == 1
    assert calls[0][-1] == "triton==3.0.0"
    assert "--no-deps" in calls[0]


def test_a_version_that_cannot_be_installed_leaves_nothing_behind(tmp_path, pip):
    _, done = pip
    done.returncode = 1
    done.stderr = (
        "WARNING: noise\nERROR: Could not find a version that satisfies the requirement triton==3.0.0\n"
        "ERROR: No matching distribution found for triton==3.0.0\n"
    )
    with pytest.raises(versions.InstallError, match=r"Triton 3\.0\.0 cannot be installed: No matching distribution"):
        versions.provide("3.0.0", tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_the_triton_of_this_python_needs_no_installation(tmp_path, pip, monkeypatch):
    monkeypatch.setattr(versions, "installed", lambda: "3.8.0")
    assert versions.provide("3.8.0", tmp_path) is None
    assert pip[0] == []
