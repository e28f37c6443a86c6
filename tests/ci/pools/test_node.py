"""`ridgeline doctor --node`: held to the pool, drained where it lasts, one sentence for each fault."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ci.__main__ import main
from ci.harness import MeasureError
from ci.pools import drained, node
from ci.pools.file import PoolsError, Site

ECC = {"kind": "ECC", "level": "error", "text": "GPU 3: 2 uncorrected ECC errors", "next_step": "replace it"}
BUSY = {"kind": "in use", "level": "error", "text": "GPU 0 is used by somebody else", "next_step": "wait"}
NUMA = {"kind": "NUMA balancing", "level": "warning", "text": "NUMA balancing is on", "next_step": "switch it off"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, ...]]:
    """The questions to the measuring program; it answers with what `answer` sets."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("RIDGELINE_NODE", "gpu-07")
    for name in ("RIDGELINE_POOL", "RIDGELINE_GPUS", "SLURMD_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    questions: list[tuple[str, ...]] = []
    answer(monkeypatch, questions)
    return questions


def answer(monkeypatch: pytest.MonkeyPatch, questions: list[tuple[str, ...]], *problems: dict[str, str]) -> None:
    def query(*words: str, limit_s: float) -> dict[str, object]:
        questions.append(words)
        return {"problems": list(problems), "facts": {"gpus": {"count": 8}}}

    monkeypatch.setattr(node, "query", query)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "--node", *arguments], standalone_mode=True)


def test_a_fit_node(asked: list[tuple[str, ...]]) -> None:
    done = invoke("--pool", "h200")
    assert (done.exit_code, "gpu-07 is fit to measure for pool h200: 8 GPUs" in done.output) == (0, True)
    assert asked[0][-4:] == ("--product", "H200 SXM", "--gpus", "1")


def test_the_pool_that_started_us(asked: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGELINE_POOL", "mi355x")
    monkeypatch.setenv("RIDGELINE_GPUS", "1")
    assert invoke().exit_code == 0
    assert asked[0][-4:] == ("--product", "MI355X", "--gpus", "1")
    assert invoke("--pool", "mi300x").exit_code == 0
    assert asked[1][-4:] == ("--product", "MI300X", "--gpus", "8")
    monkeypatch.setenv("RIDGELINE_POOL", "moon")
    assert "no pool 'moon'" in invoke().output


def test_a_fault_leaves_with_3_and_one_sentence(
    asked: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer(monkeypatch, asked, NUMA, ECC)
    done = invoke("--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["worst"]) == (3, "error")
    assert [finding["what"] for finding in document["findings"]] == [ECC["text"], NUMA["text"]]
    assert document["findings"][0]["next_step"] == "replace it"
    assert drained.drained_nodes(tmp_path / "ridgeline" / "drained") == [], "only with --drain"
    answer(monkeypatch, asked, NUMA)
    assert invoke().exit_code == 0, "a warning fails no node"


def test_a_lasting_fault_drains_the_node(
    asked: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "ridgeline" / "drained"
    answer(monkeypatch, asked, BUSY)
    assert invoke("--drain").exit_code == 3
    assert drained.drained_nodes(folder) == [], "somebody else's job ends by itself"
    answer(monkeypatch, asked, ECC, BUSY)
    assert "gpu-07 would be drained from our jobs" in invoke("--drain", "--dry-run").output
    assert drained.drained_nodes(folder) == []
    assert "gpu-07 is drained from our jobs (preflight: GPU 3: 2 uncorrected ECC errors)" in invoke("--drain").output
    first = drained.drain_reason("gpu-07", folder)
    answer(monkeypatch, asked)
    done = invoke("--drain")
    assert done.exit_code == 3, "until somebody resumes it"
    assert "`ridgeline ci pools --resume gpu-07`" in done.output.replace("\n       ", " ")
    assert drained.drain_reason("gpu-07", folder) == first


def test_a_site_has_a_list_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "runners.toml"
    path.write_text(
        f'[site.c]\nshared = "{tmp_path}"\n[pool.p]\ngpu = "MI300X"\ngpus = [8]\ncontainer = "none"\n'
        'isolation = "slurm"\nsite = "c"\npartition = "q"\n'
    )
    drained.drain("n1", "link down", tmp_path / "drained")
    check = node.node_check("p", None, path, {"SLURMD_NODENAME": "n1"})
    assert (check.name, check.folder, check.gpus) == ("n1", tmp_path / "drained", 8)
    with pytest.raises(PoolsError, match="offers jobs of 8 GPUs, not 4"):
        node.node_check("p", 4, path, {})


def test_a_preflight_without_an_answer_is_a_fault(
    asked: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*words: str, limit_s: float) -> None:
        raise MeasureError("gave no answer within 120 s: a GPU or its driver may hang")

    monkeypatch.setattr(node, "query", fail)
    done = invoke("--drain")
    assert done.exit_code == 3
    assert "the preflight gives no answer: gave no answer within 120 s" in done.output.replace("\n       ", " ")


def test_for_real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = invoke("--json", "--results", str(tmp_path))
    document = json.loads(done.stdout)
    assert document["machine"]["gpus"] == {"count": 0}
    assert str(tmp_path) in document["machine"]["disk_bytes"]


def test_options_of_the_node_need_it() -> None:
    done = CliRunner().invoke(main, ["doctor", "--drain"], standalone_mode=True)
    assert (done.exit_code, "belong to --node; add it" in done.output) == (3, True)


# Nodes drained from our jobs: a file each, whoever writes it, whatever it holds.


def test_a_node_is_drained_until_it_is_resumed(tmp_path: Path) -> None:
    name = "gpu-07.cluster"
    drained.drain(name, "3 uncorrectable\nECC errors", tmp_path, dry_run=True)
    assert list(tmp_path.iterdir()) == []
    drained.drain(name, "3 uncorrectable\nECC errors", tmp_path)
    wanted = r"gpu-07\.cluster is drained from our jobs since 20\S+ by \w+: 3 uncorrectable ECC errors"
    assert re.fullmatch(wanted, drained.drain_reason(name, tmp_path))
    assert drained.drain_reason("gpu-08", tmp_path) == ""
    drained.drain(name, "link down", tmp_path)
    assert drained.drain_reason(name, tmp_path).endswith(": link down")
    assert drained.drained_nodes(tmp_path) == [name]
    assert drained.resume(name, tmp_path, dry_run=True)
    assert drained.resume(name, tmp_path)
    assert not drained.resume(name, tmp_path)
    assert drained.drained_nodes(tmp_path / "absent") == []


def test_a_file_that_somebody_wrote_by_hand_drains_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "n1.drained").write_bytes(b"\xff\x00")
    assert drained.drain_reason("n1", tmp_path)
    assert drained.drained_nodes(tmp_path) == ["n1"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", "-a", ".hidden", "a\nb", "x" * 300])
def test_what_is_no_name_of_a_node_is_refused(tmp_path: Path, name: str) -> None:
    for act in (lambda: drained.drain(name, "r", tmp_path), lambda: drained.resume(name, tmp_path)):
        with pytest.raises(PoolsError, match="is not the name of a node"):
            act()
    assert list(tmp_path.iterdir()) == []


def test_a_reason_is_needed_and_bounded(tmp_path: Path) -> None:
    with pytest.raises(PoolsError, match="no reason to drain 'n1'; say it with --reason"):
        drained.drain("n1", " ", tmp_path)
    drained.drain("n1", "x" * 10_000, tmp_path)
    assert drained.drain_reason("n1", tmp_path).count("x") == drained.LONGEST


def test_where_the_files_are(tmp_path: Path) -> None:
    assert drained.folder_of(Site("c", shared="/shared/r")) == Path("/shared/r/drained")
    assert drained.folder_of(Site("c"), {"HOME": "/home/a"}) == Path("/home/a/.local/state/ridgeline/drained")
    assert drained.folder_of(None, {"XDG_STATE_HOME": "/s"}) == Path("/s/ridgeline/drained")
