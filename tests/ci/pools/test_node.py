"""`ridgeline doctor --node`: held to the pool, one sentence for each fault."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from ci.__main__ import main
from ci.commands import doctor
from ci.harness import MeasureError

ECC = {"kind": "ECC", "level": "error", "text": "GPU 3: 2 uncorrected ECC errors", "next_step": "replace it"}
NUMA = {"kind": "NUMA balancing", "level": "warning", "text": "NUMA balancing is on", "next_step": "switch it off"}


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """The questions to the measuring program; it answers with what `answer` sets."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("RIDGELINE_NODE", "gpu-07")
    for name in ("RIDGELINE_POOL", "RIDGELINE_GPUS", "SLURMD_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    questions = []
    answer(monkeypatch, questions)
    return questions


def answer(monkeypatch, questions, *problems):
    def query(*words, limit_s):
        questions.append(words)
        return {"problems": list(problems), "facts": {"gpus": [{}] * 8}}

    monkeypatch.setattr(doctor, "query", query)


def invoke(*arguments):
    return CliRunner().invoke(main, ["doctor", "--node", *arguments], standalone_mode=True)


def test_a_fit_node(asked):
    done = invoke("--pool", "h200")
    assert (done.exit_code, "gpu-07 is fit to measure for pool h200: 8 GPUs" in done.output) == (0, True)
    assert asked[0][-4:] == ("--product", "H200 SXM", "--gpus", "1")


def test_the_pool_that_started_us(asked, monkeypatch):
    monkeypatch.setenv("RIDGELINE_POOL", "mi355x")
    monkeypatch.setenv("RIDGELINE_GPUS", "1")
    assert invoke().exit_code == 0
    assert asked[0][-4:] == ("--product", "MI355X", "--gpus", "1")
    assert invoke("--pool", "mi300x").exit_code == 0
    assert asked[1][-4:] == ("--product", "MI300X", "--gpus", "8")
    monkeypatch.setenv("RIDGELINE_POOL", "moon")
    assert "no pool 'moon'" in invoke().output


def test_a_fault_leaves_with_3_and_one_sentence(asked, monkeypatch):
    answer(monkeypatch, asked, NUMA, ECC)
    done = invoke("--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["worst"]) == (3, "error")
    assert [finding["what"] for finding in document["findings"]] == [ECC["text"], NUMA["text"]]
    assert document["findings"][0]["next_step"] == "replace it"
    answer(monkeypatch, asked, NUMA)
    assert invoke().exit_code == 0, "a warning fails no node"


def test_a_preflight_without_an_answer_is_a_fault(asked, monkeypatch):
    def fail(*words, limit_s):
        raise MeasureError("gave no answer within 120 s: a GPU or its driver may hang")

    monkeypatch.setattr(doctor, "query", fail)
    done = invoke()
    assert done.exit_code == 3
    assert "a GPU or its driver may hang" in done.output


def test_for_real(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = invoke("--json", "--results", str(tmp_path))
    document = json.loads(done.stdout)
    assert document["machine"]["gpus"] == []
    assert str(tmp_path) in document["machine"]["disk_bytes"]
