"""The legs of the workflows, the command that prints them, and what would run on the runners of six AMD projects."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ci.pools import file, matrix
from ci.pools.__main__ import main
from ci.pools.types import PoolsError
from tests.ci.pools.conftest import Host

ROOT = Path(file.__file__).parents[2]
EXAMPLES = ROOT / "ci" / "pools" / "examples"
RUN = ["python", "-m", "ci", "run", "--out", "trials.jsonl"]


def test_one_leg_for_each_pool_and_size() -> None:
    found = matrix.legs(file.load(), RUN)
    assert [leg.name for leg in found] == [
        *("mi300x-1", "mi300x-8", "mi325x-1", "mi325x-8", "mi355x-1", "mi355x-8", "h200-1")
    ]
    assert found[1].runs_on == ["linux", "mi300x", "mi300x-8"]
    assert (found[1].gpu, found[1].gpus, found[1].minutes) == ("MI300X", 8, 240)
    assert "command=(python -m ci run --out trials.jsonl)" in found[1].script


def test_some_legs() -> None:
    pools = file.load()
    assert [leg.name for leg in matrix.legs(pools, RUN, ["mi355x", "h200"], 1)] == ["mi355x-1", "h200-1"]
    for only, gpus, message in ((["moon"], None, "no pool 'moon'"), (["h200"], 8, "no pool of h200 offers jobs of 8")):
        with pytest.raises(PoolsError, match=message):
            matrix.legs(pools, RUN, only, gpus)


def test_the_login_node_submits() -> None:
    [leg] = matrix.legs(file.load(EXAMPLES / "aiter.toml"), RUN, ["spur"])
    assert (leg.runs_on, leg.gpus, leg.gpu) == (["aiter-di-ci-spur-login"], 8, "MI350X")
    submitted = "jobs submit --executor slurm --on spur --gpus 8 --wait -- run --out trials.jsonl"
    assert f"command=(python -m ci {submitted})" in leg.script
    with pytest.raises(PoolsError, match="'make check' cannot be submitted: .* write `python -m ci VERB"):
        matrix.legs(file.load(EXAMPLES / "aiter.toml"), ["make", "check"], ["spur"])


def test_a_pool_that_only_slurm_reaches_has_no_leg() -> None:
    text = (EXAMPLES / "aiter.toml").read_text().replace("login = ", "# ")
    pools = file.parse(tomllib.loads(text))
    assert "spur-8" not in [leg.name for leg in matrix.legs(pools, RUN)]
    with pytest.raises(PoolsError, match="'spur' has no runs_on"):
        matrix.legs(pools, RUN, ["spur"])


# ---- the command -------------------------------------------------------------------------------------------------


def test_the_output_of_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--matrix", "--only", "h200", "--only", "", "--gpus", "", "--", *RUN]
    assert main(words, {"GITHUB_OUTPUT": str(tmp_path / "out")}) == 0
    line = capsys.readouterr().out.strip()
    assert [leg["name"] for leg in json.loads(line)] == ["h200-1"]
    assert (tmp_path / "out").read_text() == f"legs={line}\n"


def test_it_runs_before_anything_is_installed() -> None:
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import runpy; "
             "runpy.run_module('ci.pools', run_name='__main__')", "--matrix", "--", *RUN]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 7


HOSTILE = "x; touch owned; #"


@pytest.mark.parametrize(
    "words", [["--only", HOSTILE], ["--gpus", HOSTILE], ["--only", "$(touch owned)"], ["--only", "`touch owned`"]]
)
def test_a_hostile_name_reaches_no_shell(tmp_path: Path, words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ci.pools", "--matrix", *words, "--", "true"],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("Error: ")
    assert list(tmp_path.iterdir()) == []


def test_make_hands_no_word_of_a_caller_to_a_shell(tmp_path: Path) -> None:
    """`make machines MACHINE='x; id; #'` ran id: no recipe may hold a variable that is a caller's to set."""
    names = ("MACHINE", "POOL", "ONLY", "GPUS", "KERNEL", "TIER", "SHA")
    given = [f"{name}={HOSTILE}" for name in names]
    targets = [line.split(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if line[:1].isalpha()]
    for target in {name for name in targets if name.isalpha()}:
        shown = subprocess.run(
            ["make", "--dry-run", "--always-make", "--silent", target, *given, "PYTHON=true"],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
        assert "touch owned" not in shown.stdout, target


@pytest.mark.slow
def test_what_would_run_for_six_projects(host: Host, golden: object) -> None:
    """Labels, and the words with which each container would be started, for every pool and size of the examples."""
    for _ in range(4):
        host.add_gpu()
    shown = [text for path in sorted(EXAMPLES.glob("*.toml")) for text in _shown(host, path)]
    golden("pools/six_projects.txt", "\n".join(shown) + "\n")  # type: ignore[operator]


def _shown(host: Host, path: Path):  # type: ignore[no-untyped-def]
    pools = file.load(path)
    for pool in pools.pools.values():
        for gpus in pool.gpus:
            runner = pools.runner_of(pool)
            yield f"{path.stem}: {pool.title(gpus)}, runs-on {runner and runner.sized(gpus).value}"
            host.podinfo("gha-gpu-isolation-settings", f"ROCR_VISIBLE_DEVICES={','.join(map(str, range(gpus)))}\n")
            nodes = [f"--device /dev/dri/renderD{128 + 8 * index}" for index in range(gpus)]
            host.podinfo("gha-render-devices", " ".join(nodes))
            (host.folder / "bin" / "calls").unlink(missing_ok=True)
            done = host.run(pool, ["bash", "-c", "echo inside"], gpus)
            assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr
            if host.calls():
                words = [str(pool.container), *host.started()]
                said = " ".join(words[: words.index("-c")]).replace(str(host.workspace), "/w")
                said = re.sub(r"(--name=\S+?)-\d+-\d+ ", r"\1 ", said)
                said = re.sub(r"RIDGELINE_NODE=\S+", "RIDGELINE_NODE=HOST", said)
                yield "  " + re.sub(r"--group-add=\d+", "--group-add=RENDER", said)
            else:
                yield "  here: the runner is the container"
