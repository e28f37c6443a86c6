"""submit, jobs and cancel at the command line: what is refused before it is queued, what a cluster would get."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from ci.__main__ import main
from ci.commands import jobs
from ci.commands.jobs import code_of, following
from ci.executors import JobStatus, Sharding, State, locks
from ci.pools import drained
from ci.pools import file as pools
from tests.kit import ridgeline

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "ci/pools/examples"

ON_SLURM = """
[site.hpc]
account = "kernels"
sbatch = ["--qos=benchmark"]

[pool.apptainer]
gpu = "MI355X"
gpus = [1, 8]
container = "apptainer"
image = "/images/rocm.sif"
isolation = "slurm"
site = "hpc"
partition = "mi355x"
gres = "mi355x"
constraint = "nps1"
time = "1-00:00:00"

[pool.pyxis]
gpu = "MI325X"
gpus = [8]
container = "pyxis"
image = "rocm/pytorch:latest"
isolation = "slurm"
site = "hpc"
partition = "mi325x"
exclusive = true
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """A command of ours with a queue and a machine of its own."""
    monkeypatch.setenv(locks.VARIABLE, str(tmp_path / "locks"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def invoke(verb: str, *arguments: str) -> Result:
        return ridgeline(verb, "--queue", str(tmp_path / "queue"), *arguments)

    return invoke


# ---- what is refused ----


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpu", "8", "--", "run"], "No such option '--gpu'"),
        (["--on", "mi300x", "--", "run"], "--on and --array are of clusters"),
        (["--array", "3", "--", "run"], "--on and --array are of clusters"),
        (["--", "rn"], "'rn' is not a verb that can be a job"),
        (["--", "submit", "--", "run"], "'submit' is not a verb that can be a job"),
        (["--", "run", "--trails", "3"], "No such option '--trails'"),
        (["--", "run", "--trials", "0"], "0 is not in the range"),
        (["nightly", "--tier", "hourly"], "'hourly' is not one of"),
        (["--status", "nope"], "No such option '--status'"),
        (["--timeout", "0", "--", "run"], "0.0 is not in the range"),
        (["--executor", "slurm", "--", "run"], "needs --on POOL"),
        (["--executor", "slurm", "--on", "mi999x", "--", "run", "--out", "x"], "no pool 'mi999x'"),
        (["--executor", "slurm", "--on", "mi300x", "--gpus", "3", "--", "run", "--out", "x"], "not 3; ask for one of"),
        (["--executor", "slurm", "--on", "mi300x", "--array", "2", "--", "isa"], "'isa' cannot be split"),
        (["--executor", "slurm", "--on", "mi300x", "--timeout", "1e7", "--", "isa"], "timeout_s is 1e+07"),
        ([], "say what to run after --"),
    ],
)
def test_nothing_is_queued_that_would_die_later(
    here: Callable[..., Result], tmp_path: Path, arguments: list[str], said: str
) -> None:
    result = here("submit", *arguments)
    assert result.exit_code == 3, result.output
    assert said in result.output
    assert not (tmp_path / "queue").exists()


def test_unknown_ids_are_errors(here: Callable[..., Result]) -> None:
    for verb, id_ in [("jobs", "nope"), ("cancel", "nope"), ("cancel", "../x"), ("jobs", "../x")]:
        result = here(verb, id_)
        assert (result.exit_code, "lists" in result.output) == (3, True), result.output
    assert here("submit", "--resume", "nope").exit_code == 3


# ---- the local queue ----


def test_a_job_that_takes_too_long_leaves_with_3_and_a_sentence(here: Callable[..., Result]) -> None:
    result = here("submit", "--timeout", "1", "--wait", "--", "doctor")
    assert result.exit_code == 3, result.output
    assert "still running after 1 s" in result.output


def test_the_code_of_the_command_is_that_of_waiting(here: Callable[..., Result]) -> None:
    assert here("submit", "--wait", "--", "pools").exit_code == 0
    assert here("submit", "--wait", "--", "pools", "--show", "mi999x").exit_code == 3
    listed = json.loads(here("jobs", "--json").output)
    assert [job["state"] for job in listed] == ["done", "failed"]
    assert here("jobs", listed[0]["id"]).output.startswith(f"{listed[0]['id']}  pools  done  on cpu")
    assert "would cancel" in here("cancel", "--dry-run", listed[0]["id"]).output
    assert here("cancel", listed[0]["id"]).exit_code == 0


@pytest.mark.parametrize(
    ("state", "code", "wanted"),
    [
        (State.DONE, 0, 0),
        (State.DONE, None, 0),
        (State.FAILED, 1, 1),
        (State.FAILED, 2, 2),
        (State.FAILED, 137, 3),
        (State.FAILED, -15, 3),
        (State.FAILED, None, 3),
        (State.TIMEOUT, 1, 3),
        (State.CANCELLED, 130, 3),
        (State.LOST, 0, 3),
    ],
)
def test_a_job_that_did_not_come_to_its_end_leaves_with_3(state: State, code: int | None, wanted: int) -> None:
    assert code_of(JobStatus("id", "name", state, code)) == wanted


# ---- what a cluster would get ----


def split(words: str, shards: int) -> tuple[jobs.InnerCommand, Sharding]:
    with click.Context(main):
        command = jobs.parsed(words.split())
        return command, jobs.sharding(command, shards)


@pytest.mark.parametrize("out", ["--out x.jsonl", "--out=x.jsonl"])
def test_out_is_where_the_lines_go_in_the_end(out: str) -> None:
    command, four = split(f"nightly {out} --trials 5 --kernel gemm", 4)
    assert " ".join(command.without_out) == "run --tier nightly --trials 5 --kernel gemm"
    assert (four.out, four.trials, four.first_trial, four.resumes, four.finish) == ("x.jsonl", 5, 0, True, ())


@pytest.mark.parametrize(
    ("words", "shards", "last"),
    [
        ("run --results there", 1, "-m ci records add --results there"),
        ("ab main HEAD", 3, "-m ci ab --replay"),
        ("isa", 1, ""),
        ("sweep gemm --knob n=4,8 --out x", 8, "-m ci sweep gemm --knob n=4,8 --show --from"),
        ("sweep gemm --knob n=4,8 --out x", 1, ""),
    ],
)
def test_what_comes_last(words: str, shards: int, last: str) -> None:
    _, made = split(words, shards)
    assert " ".join(made.finish) == last
    assert made.publishes == (words != "isa")


def test_a_sweep_is_dealt_to_shards() -> None:
    for shards, dealt in ((8, ["--shard", "3/8"]), (1, [])):
        _, made = split("sweep gemm --knob num_warps=4,8 --out x.jsonl", shards)
        assert made.arguments(2 if dealt else 0, Path("/o")) == ["--out", "/o", "--resume", *dealt]
        assert made.out == "x.jsonl"


def shown(result: Result, tmp_path: Path) -> str:
    """The parts of a dry run that are ours; the way into the environment is ci.pools'."""
    assert result.exit_code == 0, result.output
    kept = re.compile(r"#SBATCH|==>|command=|pool=|image=|mounts=|setup=|exec python|sbatch|cd ")
    lines = [line for line in result.output.splitlines() if kept.match(line)]
    text = "\n".join(lines).replace(str(tmp_path / "queue"), "QUEUE").replace(str(ROOT), "CLONE")
    return re.sub(r"pytorch:\S+", "pytorch:TAG", text) + "\n"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.stem)
def test_the_runners_of_six_projects(
    here: Callable[..., Result], file: Path, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    """A pool that Slurm leads to shows what would run there; another one says how it is reached."""
    for pool in pools.load(file).pools.values():
        at = ("--executor", "slurm", "--runners", str(file), "--on", pool.name, "--array", "8", "--dry-run")
        result = here("submit", *at, "--", "nightly", "--trials", "3", "--out", "nightly.jsonl")
        golden(f"slurm/{file.stem}_{pool.name}.txt", shown(result, tmp_path))
        if not pool.site:
            refused = here("submit", *at[:-1], "--", "nightly", "--trials", "3", "--out", "nightly.jsonl")
            assert refused.exit_code == 3
            assert f"pool {pool.name!r} has no `site`" in refused.output


@pytest.mark.parametrize("pool", ["apptainer", "pyxis"])
def test_containers_of_clusters(
    here: Callable[..., Result], tmp_path: Path, golden: Callable[[str, str], None], pool: str
) -> None:
    file = tmp_path / "runners.toml"
    file.write_text(ON_SLURM)
    at = ("--executor", "slurm", "--runners", str(file), "--on", pool, "--array", "2", "--dry-run")
    golden(f"slurm/{pool}.txt", shown(here("submit", *at, "--", "ab", "HEAD", "HEAD"), tmp_path))


def test_drained_nodes_are_left_out(here: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "runners.toml"
    file.write_text(ON_SLURM)
    found = pools.load(file)
    for node in ("node-7", "node-3"):
        one = drained.Drained(node, "link 3 is down", "2026-11-22T14:00:00+00:00", "a.author")
        drained.drain(one, drained.folder_of(found.sites["hpc"]))
    at = ("--executor", "slurm", "--runners", str(file), "--on", "pyxis", "--dry-run")
    assert "#SBATCH --exclude=node-3,node-7" in shown(here("submit", *at, "--", "run", "--out", "x.jsonl"), tmp_path)


def test_our_own_pool(here: Callable[..., Result], tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    at = ("--executor", "slurm", "--on", "mi300x", "--gpus", "1", "--timeout", "600", "--dry-run")
    command = ("run", "--kernel", "gemm", "--out", "gemm.jsonl", "--first-trial", "4")
    golden("slurm/mi300x.txt", shown(here("submit", *at, "--", *command), tmp_path))


def test_a_log_gets_a_line_whenever_a_job_that_is_waited_for_moves(capsys: pytest.CaptureFixture[str]) -> None:
    waits = JobStatus("7", "ab", State.PENDING, why="Slurm: Priority")
    with following() as report:
        for job in (waits, waits, JobStatus("7", "ab", State.RUNNING, where="n1"), JobStatus("7", "ab", State.DONE)):
            report(job)
    assert capsys.readouterr().err.splitlines() == ["7 pending Slurm: Priority", "7 running n1"]
