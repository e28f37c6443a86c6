"""ci/runners.toml: what is accepted, and how each wrong value is refused: by pool, key, value and what is allowed."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ci.pools import command, file
from ci.pools.__main__ import main
from ci.pools.file import Container, Isolation, Pool, PoolsError, RunsOn

DOCKER = """
[pool.m]
gpu = "MI300X"
gpus = [1, 8]
runs_on = "gpu-{gpus}"
container = "docker"
image = "rocm/pytorch:1"
isolation = "env-file"
[pool.s]
gpu = "MI355X"
gpus = [8]
container = "pyxis"
image = "rocm/pytorch:1"
isolation = "slurm"
site = "c"
partition = "p"
[site.c]
account = "a"
[site.c.runner]
program = "/opt/actions-runner/run.sh"
repository = "owner/name"
workflows = [".github/workflows/gpu.yml"]
refs = ["refs/heads/main"]
"""


def changed(where, key, value):
    """The document above with one key of "pool.m" changed, or removed with value None."""
    document = copy.deepcopy(tomllib.loads(DOCKER))
    table = document
    for part in where.split("."):
        table = table[part]
    if value is None:
        del table[key]
    else:
        table[key] = value
    return document


@pytest.mark.parametrize("name", [name for name, pool in file.load().pools.items() if pool.vendor == "amd"])
def test_amd_containers_get_locked_memory_and_shared_memory(name):
    options = file.load().pools[name].options
    assert {"--ulimit=memlock=-1", "--security-opt=seccomp=unconfined"} <= set(options)
    assert any(option.startswith("--shm-size=") for option in options)


def test_a_file_is_read_into_types():
    pools = file.parse(tomllib.loads(DOCKER))
    assert pools.pool("m") == Pool(
        name="m",
        gpu="MI300X",
        gpus=(1, 8),
        runs_on=RunsOn(("gpu-{gpus}",)),
        container=Container.DOCKER,
        image="rocm/pytorch:1",
        isolation=Isolation.ENV_FILE,
    )
    pool, site = pools.on_slurm("s")
    assert (site.account, site.runner.jobs if site.runner else 0) == ("a", 4)
    assert (pool.gres_of(8), pool.time_limit, pool.vendor) == ("gpu:8", "60", "amd")


@pytest.mark.parametrize(
    ("value", "runs_on"),
    [
        ("amd-gfx942", ["amd-gfx942"]),
        (["self-hosted", "gfx90a"], ["self-hosted", "gfx90a"]),
        ({"group": "AMD GPUs", "labels": ["mi300x-{gpus}"]}, {"group": "AMD GPUs", "labels": ["mi300x-8"]}),
        ({"group": "AMD GPUs"}, {"group": "AMD GPUs"}),
        ("linux.rocm.gpu.gfx942.8", ["linux.rocm.gpu.gfx942.8"]),
    ],
)
def test_any_label_is_accepted(value, runs_on):
    found = file.parse(changed("pool.m", "runs_on", value)).pool("m").runs_on
    assert found is not None
    assert found.sized(8).value == runs_on


WRONG = [
    ("pool.m", "gpu", "mi300", r'\[pool.m\].gpu is "mi300"; allowed: none, MI300X'),
    ("pool.m", "gpus", [], "gpus is .* list of different numbers from 1"),
    ("pool.m", "gpus", [0], r"gpus = \[0\] does not fit gpu = 'MI300X'"),
    ("pool.m", "gpus", [16], r"gpus = \[16\] is more than node_gpus = 8"),
    ("pool.m", "runs_on", ["a\nb"], r'runs_on.labels\[0\] is "a\\nb"; allowed: a label of a runner'),
    ("pool.m", "runs_on", "gpu-{size}", "braces stand only for the number of GPUs"),
    ("pool.m", "runs_on", None, "nothing leads to it"),
    ("pool.m", "container", "podman", 'container is "podman"; allowed: none, docker, apptainer, pyxis'),
    ("pool.m", "container", "pyxis", "needs site and partition"),
    ("pool.m", "isolation", "all", 'isolation is "all"; allowed: whole, env-file'),
    ("pool.m", "isolation", "whole", "all of /dev/dri, and a job may ask for 1 of 8 GPUs"),
    ("pool.m", "options", ["--device=/dev/dri"], "is what the key isolation is for"),
    ("pool.m", "options", ["--volume=/var/run/docker.sock:/s"], "is what the key mounts is for"),
    ("pool.m", "mounts", ["/var/run/docker.sock:/var/run/docker.sock"], "opens the host"),
    ("pool.m", "mounts", ["/:/host"], "HOST:INSIDE"),
    ("pool.m", "variables", ["HF_TOKEN"], "may hold a secret"),
    ("pool.m", "packages", ["git; id"], "allowed: the name of a package"),
    ("pool.m", "minutes", 0, "whole number from 1 to"),
    ("pool.m", "exclusive", True, "exclusive = true is Slurm's and needs site"),
    ("pool.m", "image_name", "x", "unknown key 'image_name'; known: node_gpus, runs_on"),
    ("pool", "M 1", {}, 'a key of pool is "M 1"; allowed: 1 to 40 of'),
    ("pool.s", "site", "d", "site = 'd' is not described; add a table"),
    ("pool.s", "sbatch", ["--export=ALL"], "which Ridgeline sets itself"),
    ("pool.s", "user", "runner", 'with container = "pyxis" it is always so'),
    ("site.c.runner", "refs", [], "without it any job would be served"),
]


@pytest.mark.parametrize(("where", "key", "value", "message"), WRONG)
def test_a_wrong_value_is_refused_by_name(where, key, value, message):
    with pytest.raises(PoolsError, match=message):
        file.parse(changed(where, key, value))


def test_files_that_are_none(tmp_path):
    path = tmp_path / "runners.toml"
    with pytest.raises(PoolsError, match="cannot be read: No such file"):
        file.load(path)
    for text, message in (
        ("[", "is not TOML"),
        ("", "describes no pool"),
        ("[machine]", "unknown key 'machine'; known: site, pool"),
    ):
        path.write_text(text)
        with pytest.raises(PoolsError, match=message):
            file.load(path)
    path.write_bytes(b"\xff")
    with pytest.raises(PoolsError, match="is not TOML"):
        file.load(path)


# The legs of the workflows, the command that prints them, and what would run on the runners of six AMD projects.


ROOT = Path(file.__file__).parents[2]
EXAMPLE_FILES = ROOT / "ci" / "pools" / "examples"
RUN = ["python", "-m", "ci", "run", "--out", "trials.jsonl"]


def test_one_leg_for_each_pool_and_size():
    found = command.legs(file.load(), RUN)
    assert [leg.name for leg in found] == [
        *("mi300x-1", "mi300x-8", "mi325x-1", "mi325x-8", "mi355x-1", "mi355x-8", "h200-1")
    ]
    assert found[1].runs_on == ["linux", "mi300x", "mi300x-8"]
    assert (found[1].gpu, found[1].gpus, found[1].minutes) == ("MI300X", 8, 240)
    assert "command=(python -m ci run --out trials.jsonl)" in found[1].script


def test_some_legs():
    pools = file.load()
    assert [leg.name for leg in command.legs(pools, RUN, ["mi355x", "h200"], 1)] == ["mi355x-1", "h200-1"]
    for only, gpus, message in ((["moon"], None, "no pool 'moon'"), (["h200"], 8, "no pool of h200 offers jobs of 8")):
        with pytest.raises(PoolsError, match=message):
            command.legs(pools, RUN, only, gpus)


# ---- the command -------------------------------------------------------------------------------------------------


def test_the_output_of_a_step(tmp_path, capsys):
    words = ["--matrix", "--only", "h200", "--only", "", "--gpus", "", "--", *RUN]
    assert main(words, {"GITHUB_OUTPUT": str(tmp_path / "out")}) == 0
    line = capsys.readouterr().out.strip()
    assert [leg["name"] for leg in json.loads(line)] == ["h200-1"]
    assert (tmp_path / "out").read_text() == f"legs={line}\n"


def test_it_runs_before_anything_is_installed():
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import runpy; "
             "runpy.run_module('ci.pools', run_name='__main__')", "--matrix", "--", *RUN]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 7


HOSTILE = "x; touch owned; #"


@pytest.mark.parametrize(
    "words",
    [["--only", HOSTILE], ["--gpus", HOSTILE], ["--gpus", "-1"], ["--gpus", "0"], ["--nothing"]]
    + [["--only", "$(touch owned)"], ["--only", "`touch owned`"]],
)
def test_a_hostile_name_reaches_no_shell(tmp_path, words):
    done = subprocess.run(
        [sys.executable, "-m", "ci.pools", "--matrix", *words, "--", "true"],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("Error: ")
    assert list(tmp_path.iterdir()) == []


def test_make_hands_no_word_of_a_caller_to_a_shell(tmp_path):
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
def test_what_would_run_for_six_projects(host, golden):
    """Labels, and the words with which each container would be started, for every pool and size of the examples."""
    for _ in range(4):
        host.add_gpu()
    shown = [text for path in sorted(EXAMPLE_FILES.glob("*.toml")) for text in _shown(host, path)]
    golden("pools/six_projects.txt", "\n".join(shown) + "\n")  # type: ignore[operator]


def _shown(host, path):  # type: ignore[no-untyped-def]
    pools = file.load(path)
    for pool in pools.pools.values():
        for gpus in pool.gpus:
            runner = pool.runs_on
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
