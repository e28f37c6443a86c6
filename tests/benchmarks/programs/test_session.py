"""Programs on two checkouts: what is built, what is run in turn, and what becomes of one that fails."""

from __future__ import annotations

import json

import pytest

from benchmarks.coordinator.samples import PhysicalFloor
from benchmarks.programs import session
from benchmarks.programs.__main__ import main

READER = {"name": "mine", "rows": "csv", "case": ["case"], "time": {"field": "us", "unit": "us"}}
TABLE = "printf 'case,us\\na,10\\nb,20\\n'"


def measured(tmp_path, base, head, *options, commits=None, **program):
    """Exit code and trial lines of a program whose sides run these lines of bash."""
    for role, line in (("base", base), ("head", head)):
        (tmp_path / role).mkdir(exist_ok=True)
        (tmp_path / role / "bench.sh").write_text(line)
    out = tmp_path / "trials.jsonl"
    asked = {"name": "bench", "run": "bash -o pipefail ./bench.sh", "reader": READER, **program}
    hashes = {"base": None, "head": None, **(commits or {})}
    told = [(role, {"path": str(tmp_path / role), "commit": commit}) for role, commit in hashes.items()]
    sides = [f"--tree={role}={json.dumps(side)}" for role, side in told]
    argv = [*sides, "--program", json.dumps(asked), "--out", str(out), "--kept", str(tmp_path / "kept")]
    code = main([*argv, "--rounds=2", "--progress=none", *options])
    return code, [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def arms(line, case):
    """Status by arm."""
    return {key: arm["status"] for key, arm in line["cases"][case]["arms"].items()}


def test_every_row_is_a_case_and_every_run_a_round(tmp_path):
    code, lines = measured(tmp_path, TABLE, TABLE.replace("10", "11"), "--trials=2")
    assert code == 0
    assert [line["trial"] for line in lines] == [0, 1]
    found = lines[0]["cases"]["a"]["arms"]
    assert {key: arm["seconds"] for key, arm in found.items()} == {
        "base/mine": pytest.approx([10e-6] * 2),
        "head/mine": pytest.approx([11e-6] * 2),
    }


@pytest.mark.parametrize(
    ("head", "status", "said"),
    [
        (f"{TABLE}; exit 3", "error", "ended with exit code 3"),
        (f"{TABLE}; kill -SEGV $$", "crash", "was killed by SIGSEGV"),
        (f"{TABLE}; false | cat", "error", "ended with exit code 1"),
        ("true", "error", "no row that mine writes"),
        ("printf 'case,us\\na,10\\n'", "error", "the program printed no row for it"),
        (TABLE.replace("20", "nan"), "error", "us is 'nan', no time"),
    ],
)
def test_what_fails_on_head_is_never_green(tmp_path, head, status, said):
    code, [line] = measured(tmp_path, TABLE, head)
    arm = line["cases"]["b"]["arms"]["head/mine"]
    assert (code, arm["status"]) == (1, status)
    assert said in arm["why"]
    assert arms(line, "b")["base/mine"] == "ok"


def test_a_row_that_base_lacks_is_heads_alone(tmp_path):
    _, [line] = measured(tmp_path, TABLE, TABLE.replace("b,20", "b,20\\nc,5"))
    assert arms(line, "c") == {"head/mine": "ok"}


def test_a_build_is_made_once_a_commit_and_its_failure_has_its_last_words(tmp_path):
    build = "echo built >> ../builds; test ! -e broken"
    commits = {"base": "abc", "head": "def"}
    for _ in range(2):
        assert measured(tmp_path, TABLE, TABLE, commits=commits, build=build)[0] == 0
    assert (tmp_path / "builds").read_text().split() == ["built"] * 2, "once a side"
    (tmp_path / "head" / "broken").touch()
    code, lines = measured(tmp_path, TABLE, TABLE, commits=commits | {"head": "fff"}, build=build)
    arm = lines[-1]["cases"]["a"]["arms"]["head/mine"]
    assert (code, arm["status"]) == (1, "error")
    assert "head cannot be built" in arm["why"]


@pytest.mark.parametrize("run", ["../out/bench.sh", "cd ../out && ./bench.sh", "PLACE/out/bench.sh"])
def test_builds_of_both_sides_in_one_place_are_refused_each_time(tmp_path, run, capsys):
    told = {"build": "mkdir -p ../out; cp bench.sh ../out; chmod +x ../out/bench.sh"}
    for _ in range(2):
        run = run.replace("PLACE", str(tmp_path))
        code, lines = measured(tmp_path, TABLE, TABLE, commits={"base": "abc", "head": "def"}, run=run, **told)
        assert (code, lines) == (2, [])
        assert "which builds of both sides write" in capsys.readouterr().err


def test_a_build_that_fails_is_told_by_the_first_error_of_its_compiler(tmp_path):
    said = "echo error: pip gives up; echo x.cu:7: error: no such thing >&2; echo make: Error 2 >&2"
    build = f"test ! -e broken || {{ {said}; exit 2; }}"
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "broken").touch()
    _, [line] = measured(tmp_path, TABLE, TABLE, build=build)
    assert "it said: x.cu:7: error: no such thing" in line["cases"]["a"]["arms"]["head/mine"]["why"]
    assert line["warnings"] == []


def test_a_row_that_is_faster_than_the_device_allows_is_questioned(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "floor_of", lambda declared, case, machine: PhysicalFloor(1.0, "its bytes"))
    _, [line] = measured(tmp_path, TABLE, TABLE)
    assert any("head/mine: impossible time" in one for one in line["cases"]["a"]["warnings"])


def test_a_build_tells_where_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(session, "PROGRESS_S", 0.05)
    measured(tmp_path, TABLE, TABLE, "--progress=json", build="echo '[3/9] Building x.o'; sleep 0.3")
    assert "building head: [3/9] Building x.o" in capsys.readouterr().err


def test_a_run_that_hangs_is_ended_with_all_it_started(tmp_path):
    line = f"{TABLE}; test ! -e slow || (sleep 1000; touch ../woke)"
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "slow").touch()
    _, [trial] = measured(tmp_path, line, line, "--deadline=0.5")
    arm = trial["cases"]["a"]["arms"]["head/mine"]
    assert arm["status"] == "hang"
    assert "did not end within 0.5 s" in arm["why"]


def test_a_file_that_a_run_writes_is_read_and_an_old_one_is_not(tmp_path):
    written = f"{TABLE} > out.csv"
    assert measured(tmp_path, written, written, output="out.csv")[0] == 0
    code, lines = measured(tmp_path, written, "true", output="out.csv")
    assert code == 1
    assert "wrote no out.csv" in lines[-1]["cases"]["a"]["arms"]["head/mine"]["why"]


def test_nothing_that_can_be_read_on_either_side_is_no_verdict(tmp_path, capsys):
    assert measured(tmp_path, "echo hello", "echo hello") == (2, [])
    assert "no row that mine writes" in capsys.readouterr().err
