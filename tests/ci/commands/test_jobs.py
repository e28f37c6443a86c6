"""submit, jobs and cancel at the command line: what is refused before it is submitted, what a cluster would get."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from ci.__main__ import main
from ci.commands import jobs
from ci.options import Given
from ci.pools import file as pools
from ci.slurm.jobs import JobStatus, State
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
def here(tmp_path, monkeypatch):
    """A command of ours with a folder of jobs of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def invoke(verb, *arguments):
        return ridgeline(verb, "--queue", str(tmp_path / "queue"), *arguments)

    return invoke


# ---- what is refused ----


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpu", "8", "--", "run"], "No such option '--gpu'"),
        (["--on", "mi300x", "--", "rn"], "there is no verb 'rn': did you mean `ridgeline run`?"),
        (["--on", "mi300x", "--", "jobs"], "'jobs list' is not a verb that can be a job"),
        (["--on", "mi300x", "--", "run", "--trails", "3"], "No such option '--trails'"),
        (["--on", "mi300x", "--", "run", "--trials", "0"], "0 is not in the range"),
        (["--on", "mi999x", "--", "run", "--out", "x"], "no pool 'mi999x'"),
        (["--on", "mi300x", "--array", "2", "--", "isa"], "'isa' cannot be split"),
        (["--on", "h200", "--", "run", "--out", "x"], "pool 'h200' has no `site`: no Slurm leads to it"),
        (["--on", "mi300x"], "say where, and what to run after --"),
    ],
)
def test_nothing_is_submitted_that_would_die_later(here, tmp_path, arguments, said):
    result = here("submit", *arguments)
    assert result.exit_code == 3, result.output
    assert said in result.output
    assert not (tmp_path / "queue").exists()


def test_unknown_ids_are_errors(here):
    for verb, id_ in [("jobs", "nope"), ("cancel", "nope"), ("cancel", "../x"), ("jobs", "../x")]:
        result = here(verb, id_)
        assert (result.exit_code, "lists" in result.output) == (3, True), result.output
    assert here("submit", "--resume", "nope").exit_code == 3


# ---- what a cluster would get ----


def split(words, tasks):
    given = Given(pool="mi300x", runners=None, gpus=None, time="", tasks=tasks)
    with click.Context(main):
        command = jobs.parsed(words.split())
        return command, jobs.job_spec(command, given)


@pytest.mark.parametrize("out", ["--out x.jsonl", "--out=x.jsonl"])
def test_out_is_where_the_lines_go_in_the_end(out, tmp_path):
    _, four = split(f"run --tier nightly {out} --trials 5 --kernel gemm", 4)
    assert (four.out, four.trials, four.first_trial, four.finish) == ("x.jsonl", 5, 0, ())
    place = tmp_path / "o"
    argv = four.task_argv(2, place)
    assert argv[-5:] == ["--resume", "--out", str(place), "--first-trial", "10"]
    with click.Context(main):
        assert jobs.parsed(argv[2:]).values["out"] == place


@pytest.mark.parametrize(
    ("words", "tasks", "last"),
    [("ab main HEAD", 3, "-m ci ab --replay"), ("isa", 1, ""), ("sweep gemm --knob n=4,8 --out x", 1, "")],
)
def test_what_comes_last(words, tasks, last):
    _, spec = split(words, tasks)
    assert " ".join(spec.finish) == last
    assert spec.publishes == (words != "isa")


def test_a_run_without_out_is_recorded_in_the_end():
    with click.Context(main):
        command = jobs.parsed(["run", "--results", "there"])
    assert " ".join(jobs.finish_command(command, 1)) == "-m ci records add --results there"


def test_a_sweep_is_one_task_that_goes_on_with_its_file():
    _, spec = split("sweep gemm --knob num_warps=4,8 --out x.jsonl", 1)
    assert spec.task_argv(0, Path("/o"))[2:] == [
        *["sweep", "gemm", "--knob", "num_warps=4,8", "--out", "x.jsonl", "--out", "/o"]
    ]
    assert spec.out == "x.jsonl"
    with pytest.raises(click.UsageError, match="'sweep' cannot be split; `run` and `ab` can"):
        split("sweep gemm --knob num_warps=4,8 --out x.jsonl", 8)


def shown(result, tmp_path):
    """The parts of a dry run that are ours; the way into the environment is ci.pools'."""
    assert result.exit_code == 0, result.output
    kept = re.compile(
        r"#SBATCH|==>|command=|pool=|image=|mounts=|setup=|exec python|  tasks=|    sbatch|job=|bash |python -m"
    )
    lines = [line for line in result.output.splitlines() if kept.match(line)]
    text = "\n".join(lines).replace(str(tmp_path / "queue"), "QUEUE").replace(str(ROOT), "CLONE")
    return re.sub(r"pytorch:\S+", "pytorch:TAG", text) + "\n"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.stem)
def test_the_runners_of_six_projects(here, file, tmp_path, golden):
    for pool in pools.load(file).pools.values():
        at = ("--runners", str(file), "--on", pool.name, "--array", "8", "--dry-run")
        result = here("submit", *at, "--", "run", "--tier", "nightly", "--trials", "3", "--out", "nightly.jsonl")
        if pool.site:
            golden(f"slurm/{file.stem}_{pool.name}.txt", shown(result, tmp_path))
        else:
            assert (result.exit_code, f"pool {pool.name!r} has no `site`" in result.output) == (3, True)


@pytest.mark.parametrize("pool", ["apptainer", "pyxis"])
def test_containers_of_clusters(here, tmp_path, golden, pool):
    file = tmp_path / "runners.toml"
    file.write_text(ON_SLURM)
    at = ("--runners", str(file), "--on", pool, "--array", "2", "--dry-run")
    golden(f"slurm/{pool}.txt", shown(here("submit", *at, "--", "ab", "HEAD", "HEAD"), tmp_path))


def test_our_own_pool(here, tmp_path, golden):
    at = ("--on", "mi300x", "--gpus", "1", "--time", "2:00:00", "--dry-run")
    command = ("run", "--kernel", "gemm", "--out", "gemm.jsonl", "--first-trial", "4")
    golden("slurm/mi300x.txt", shown(here("submit", *at, "--", *command), tmp_path))


def test_a_job_on_one_line():
    waits = JobStatus("7-ab", State.PENDING, reason="Slurm: Priority", tasks=4)
    assert jobs.status_line(waits) == "7-ab  pending  0 of 4 tasks have ended  Slurm: Priority"
    ended = JobStatus("7-ab", State.DONE, exit_code=1, log="/x")
    assert jobs.status_line(ended) == "7-ab  done, exit code 1  log: /x"
