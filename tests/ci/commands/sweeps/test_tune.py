"""`ridgeline tune` from files: the table of a tree, its diff, its exit codes, and sentences for bad input."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci.__main__ import main
from ci.sweeps.tuned import tuning
from tests.ci.sweeps.tuned.made_tables import DEFAULTS, FAST, OTHER, RULE, SLOW, TABLE, case, sweep_file

COMMIT = "c" * 40


def offered(cases, arch: str = "sm_90") -> dict:
    """What `python -m benchmarks candidates` prints of some cases."""
    entries = []
    for one in cases:
        place = one.place
        table = {"file": str(place.file), "table": list(place.table), "key": place.key, "entry": dict(one.entry)}
        table |= {"rule": RULE, "defaults": DEFAULTS, "scale": {}}
        knobs = {name: {"default": value, "type": type(value).__name__} for name, value in DEFAULTS.items()}
        config = {**DEFAULTS, **(one.entry or RULE)}
        told = {"kernel": "gemm", "case": one.case, "backend": one.backend, "tier": "pr", "dtype": "fp16", "world": 1}
        told |= {"config": config, "rule": {**DEFAULTS, **RULE}, "knobs": knobs, "table": table, "baseline": False}
        entries.append({**told, "candidates": [dict(knobs) for knobs in one.candidates], "dims": {}, "why": ""})
    return {"kernel": "gemm", "arch": arch, "compute_units": 132, "entries": entries}


@pytest.fixture
def tree(tmp_path, monkeypatch) -> Path:
    """A tree with a table; its two cases of m64 share an entry."""
    (tmp_path / "kernels").mkdir()
    file = tmp_path / "tuned.toml"
    file.write_text(TABLE)
    cases = [case("m64_fp16", FAST, file), case("m64_bf16", FAST, file), case("m256_fp16", SLOW, file)]
    cases += [case("m128_fp16", None, file)]
    asked = {"candidates": offered(cases), "list": {"kernels": [{"kernel": "gemm", "tuned": ["triton"]}]}}
    monkeypatch.setattr("ci.sweeps.catalogue.query", lambda verb, *_, **__: asked[verb])
    return tmp_path


def tune(tree: Path, *words: str):
    common = ("--tree", str(tree), "--commit", COMMIT, "--commit-date", "1790000000000")
    return CliRunner().invoke(main, ["tune", *words, *common])


def both(ratio: float) -> dict:
    return {name: [(RULE, 1.1), (OTHER, ratio)] for name in ("m64_fp16", "m64_bf16")}


def test_a_sweep_becomes_the_table(tree):
    file = sweep_file(tree, both(0.9), entry=FAST)
    done = tune(tree, "gemm", "--from", str(file))
    assert done.exit_code == 0, done.output
    assert "moved" in done.output
    found = tomllib.loads((tree / "tuned.toml").read_text())["sm_90"]
    assert {name: found["m64"][name] for name in OTHER} == OTHER
    assert found["m64"]["confirmed"]["cases"] == ["m64_fp16", "m64_bf16"]
    assert found["m256"] == SLOW


def test_a_dry_run_shows_the_difference_and_writes_nothing(tree):
    done = tune(tree, "all", "--from", str(sweep_file(tree, both(0.9), entry=FAST)), "--dry-run")
    assert done.exit_code == 0, done.output
    assert "-stages = 2\n+stages = 4" in done.output
    assert (tree / "tuned.toml").read_text() == TABLE


@pytest.mark.parametrize(("ratio", "code"), [(0.9, 1), (1.05, 0)])
def test_a_verification_that_finds_something_better_is_an_alarm(tree, ratio, code):
    done = tune(tree, "gemm", "--verify", "--from", str(sweep_file(tree, both(ratio), entry=FAST)), "--json")
    assert done.exit_code == code, done.output
    [entry] = json.loads(done.stdout)["entries"]
    assert entry["action"] == ("moved" if code else "confirmed")
    assert entry["against_rule"][0] < 1


def test_what_is_not_decided_is_no_pass(tree):
    half = {"m64_fp16": both(0.9)["m64_fp16"]}
    done = tune(tree, "gemm", "--from", str(sweep_file(tree, half, entry=FAST)))
    assert done.exit_code == 2
    assert "m64_bf16" in done.output
    assert (tree / "tuned.toml").read_text() == TABLE


def test_what_was_compiled_there_is_what_confirms_here(tree):
    file = sweep_file(tree, both(1.05), entry=FAST)
    one = case("m64_fp16")
    code = {(name, "triton", one.identity(knobs)): f"{name}{knobs}" for name in ("m64_fp16", "m64_bf16")
            for knobs in (RULE, FAST, OTHER)}  # fmt: skip
    tuning.write(file, "gemm", code)
    tuning.write(file, "other", {("a", "b", "c"): "d"})
    assert tuning.read([tuning.beside(file)], "gemm") == code
    assert tune(tree, "gemm", "--from", str(file)).exit_code == 0
    confirmed = tomllib.loads((tree / "tuned.toml").read_text())["sm_90"]["m64"]["confirmed"]
    assert len(confirmed["code"]) == 16
    tuning.beside(file).write_text("{}")
    tuning.beside(file).write_text('[["too", "short"]]')
    done = tune(tree, "gemm", "--from", str(file))
    assert done.exit_code == 3
    assert "not five texts" in done.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("gemm", "--case", "m65*"), "no case of gemm that can be tuned fits 'm65*'"),
        (("gemm", "--backend", "blas"), "backend 'blas' of gemm has no tuned table; those that have one: triton"),
        (("gemm", "--arch", "gfx942"), "--arch is for --dry-run"),
        (("conv",), "0 sweeps of conv"),
    ],
)
def test_bad_input_is_named(tree, words, says):
    more = ["--from", str(sweep_file(tree, both(0.9), entry=FAST))]
    done = tune(tree, *words, *more)
    assert done.exit_code == 3
    assert says in done.output


def test_a_verification_without_a_device_says_what_is_due(tree):
    done = tune(tree, "gemm", "--verify", "--arch", "sm_90", "--dry-run", "--budget", "0.4")
    assert done.exit_code == 0, done.output
    assert "sm_90.m256: to verify, never confirmed" in done.output
    assert "sm_90.m64: waits for the next call" in done.output
