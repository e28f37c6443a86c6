"""The text that enters a pool, run for real on a host of stand-ins (conftest)."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from ci import origin
from ci.pools import command
from ci.pools.command import wrapped
from ci.pools.file import NO_GPU, Container, Isolation, Pool, PoolsError
from tests.ci.pools.conftest import UNIQUE, fake
from tests.kit import HANGS_S

MI300X = Pool(
    "m", "MI300X", (1, 2), 4, None, Container.DOCKER, "rocm/pytorch:1", ("--ipc=host",), isolation=Isolation.ENV_FILE
)


def devices(words):
    return [word.removeprefix("--device=") for word in words if word.startswith("--device=")]


# ---- which GPUs --------------------------------------------------------------------------------------------------


def test_a_pods_file_of_settings_becomes_its_render_devices(host):
    host.podinfo("gha-gpu-isolation-settings", 'HIP_VISIBLE_DEVICES=7\nROCR_VISIBLE_DEVICES="1,3"\n')
    done = host.run(MI300X, ["env"], 2)
    assert done.returncode == 0, done.stderr
    assert devices(host.started()) == ["/dev/kfd", "/dev/dri/renderD136", "/dev/dri/renderD152"]
    assert "ROCR_VISIBLE_DEVICES=0,1" in done.stdout.splitlines(), "inside there are only these two"
    assert "HIP_VISIBLE_DEVICES" not in done.stdout


def test_gpus_by_unique_id(host):
    host.podinfo("gha-gpu-isolation-settings", f"ROCR_VISIBLE_DEVICES=GPU-{UNIQUE + 2:016x}")  # no newline at the end
    assert host.run(MI300X, ["true"]).returncode == 0
    assert devices(host.started()) == ["/dev/kfd", "/dev/dri/renderD144"]


@pytest.mark.parametrize(
    ("settings", "gpus", "message"),
    [
        (None, 1, "is missing: this runner does not say which GPUs are its own"),
        ("", 1, "wants 1 GPUs and .*gha-gpu-isolation-settings gives 0 (none)"),
        ("ROCR_VISIBLE_DEVICES=0,1,2,3", 1, "gives 4 (0,1,2,3)"),
        ("ROCR_VISIBLE_DEVICES=0,0", 2, "names one GPU twice (0,0)"),
        ("ROCR_VISIBLE_DEVICES=9", 1, "names GPU 9, and this host shows 4 GPUs"),
        ("ROCR_VISIBLE_DEVICES=*", 1, "names GPU *, and this host"),
        ("ROCR_VISIBLE_DEVICES=$(touch owned)", 1, "names GPU $(touch owned)"),
    ],
)
def test_settings_that_fit_no_gpu_are_refused(host, settings, gpus, message):
    if settings is not None:
        host.podinfo("gha-gpu-isolation-settings", settings)
    done = host.run(MI300X, ["true"], gpus)
    assert done.returncode == 3
    assert message.replace(".*", f"{host.root}/etc/podinfo/") in done.stderr
    assert [call["argv"][0] for call in host.calls()] == ["ps"]  # type: ignore[index]
    assert not (host.workspace / "owned").exists()


RENDER = dataclasses.replace(MI300X, isolation=Isolation.RENDER_DEVICES)


@pytest.mark.parametrize("text", ["--device /dev/dri/renderD136", "--device=/dev/dri/renderD136\n"])
def test_a_pods_render_devices(host, text):
    host.podinfo("gha-render-devices", text)
    assert host.run(RENDER, ["true"]).returncode == 0
    assert devices(host.started()) == ["/dev/kfd", "/dev/dri/renderD136"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "gives 0"),
        ("--device /dev/dri/renderD136 --device /dev/dri/renderD144", "gives 2"),
        ("--device /dev/dri", "holds '/dev/dri', which is not a render device"),
        ("--privileged", "holds '--privileged'"),
    ],
)
def test_render_devices_that_are_none_are_refused(host, text, message):
    host.podinfo("gha-render-devices", text)
    done = host.run(RENDER, ["true"])
    assert (done.returncode, message in done.stderr) == (3, True), done.stderr


def test_all_of_dev_dri_only_for_a_job_that_has_the_node(host):
    pool = dataclasses.replace(MI300X, gpus=(4,), isolation=Isolation.WHOLE)
    assert host.run(pool, ["true"], 4).returncode == 0
    assert devices(host.started()) == ["/dev/kfd", "/dev/dri"]
    less = dataclasses.replace(pool, gpus=(2,), node_gpus=2)
    done = host.run(less, ["true"], 2)
    assert done.returncode == 3
    assert "a job of 2 GPUs would get all of /dev/dri, and this host shows 4 GPUs" in done.stderr


def test_what_slurm_gave(host):
    pool = dataclasses.replace(MI300X, isolation=Isolation.SLURM)
    assert host.run(pool, ["true"], 2, ROCR_VISIBLE_DEVICES="2,3", HIP_VISIBLE_DEVICES="0").returncode == 0
    assert devices(host.started()) == ["/dev/kfd", "/dev/dri/renderD144", "/dev/dri/renderD152"]


def test_nvidia(host):
    pool = dataclasses.replace(MI300X, gpu="H200 SXM", isolation=Isolation.VISIBLE_DEVICES)
    assert host.run(pool, ["true"], 2, CUDA_VISIBLE_DEVICES="4,5").returncode == 0
    assert '--gpus="device=4,5"' in host.started()


def test_a_size_that_is_not_offered():
    with pytest.raises(PoolsError, match="offers jobs of 1, 2 GPUs, not 8"):
        wrapped(MI300X, ["true"], 8)


# ---- what enters -------------------------------------------------------------------------------------------------

SECRETS = {
    "GITHUB_TOKEN": "s3cret", "GH_TOKEN": "s3cret", "ACTIONS_RUNTIME_TOKEN": "s3cret", "ACTIONS_RUNTIME_URL": "s3cret",
    "ACTIONS_ID_TOKEN_REQUEST_URL": "s3cret", "SLURM_JWT": "s3cret", "RIDGELINE_SECRET": "s3cret",
    "AWS_ACCESS_KEY_ID": "s3cret", "APPTAINERENV_HF_TOKEN": "s3cret", "APPTAINERENV_X": "s3cret",
    "MYPASSWORD": "s3cret", "BASH_ENV": "/s3cret", "LD_PRELOAD": "", "PYTHONPATH": "/s3cret", "GITHUB_ENV": "/s3cret",
    "RUNNER_TEMP": "/s3cret",
}  # fmt: skip
KINDS = {
    "none": dataclasses.replace(MI300X, container=Container.NONE, image="", options=(), isolation=Isolation.WHOLE),
    "docker": dataclasses.replace(MI300X, isolation=Isolation.SLURM),
    "apptainer": dataclasses.replace(MI300X, container=Container.APPTAINER, isolation=Isolation.SLURM),
    "pyxis": dataclasses.replace(MI300X, container=Container.PYXIS, isolation=Isolation.SLURM),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_secret_enters(host, kind):
    carried = {"SLURM_JOB_ID": "7", "RIDGELINE_HEAP": "ipc", "ROCR_VISIBLE_DEVICES": "0,1", "MY_DATA": "/data"}
    pool = dataclasses.replace(KINDS[kind], variables=("MY_DATA",))
    done = host.run(pool, ["env"], 2, **SECRETS, **carried)
    assert done.returncode == 0, done.stderr
    assert "s3cret" not in done.stdout
    expected = {"RIDGELINE_HEAP=ipc", "SLURM_JOB_ID=7", "RIDGELINE_POOL=m", "RIDGELINE_GPUS=2", "MY_DATA=/data"}
    assert expected <= set(done.stdout.splitlines())
    assert "ROCR_VISIBLE_DEVICES=0,1" in done.stdout.splitlines(), "whole: the comma is no separator"
    if kind != "docker":
        assert "s3cret" not in json.dumps([call["environ"] for call in host.calls()])
    assert "s3cret" not in json.dumps([call["argv"] for call in host.calls()])


@pytest.mark.parametrize("kind", KINDS)
def test_words_arrive_as_they_are_and_the_exit_code_comes_back(host, kind):
    words = ["a b", "$(touch owned)", "'", '"', "x; touch owned; #", "*", "", "é\n2"]
    script = "import os, sys; print(os.getcwd(), ascii(sys.argv[1:]), sep=chr(10)); sys.exit(41)"
    done = host.run(KINDS[kind], ["python3", "-c", script, *words])
    assert (done.returncode, done.stderr) == (41, "")
    assert done.stdout == f"{host.workspace}\n{ascii(words)}\n"
    assert not (host.workspace / "owned").exists()


# ---- packages, git, the environment ------------------------------------------------------------------------------


def test_packages_that_are_missing_are_installed_first(host):
    fake(host, "dpkg", '[ "$2" = git ]')
    fake(host, "apt-get", f'echo "$@" >>{host.folder}/apt')
    fake(host, "sudo", 'shift; exec "$@"')
    pool = dataclasses.replace(KINDS["docker"], packages=("git", "make", "python3-venv"))
    assert host.run(pool, ["true"]).returncode == 0
    installed = "-qq install --yes --no-install-recommends make python3-venv"
    assert (host.folder / "apt").read_text().splitlines() == ["-qq update", installed]
    fake(host, "apt-get", "exit 100")
    done = host.run(pool, ["echo", "ran"])
    assert (done.returncode, done.stdout) == (3, "")
    assert "packages make python3-venv were not installed; build them into the image" in done.stderr


def test_git_trusts_the_workspace(host):
    home = host.folder / "bin"  # HOME inside
    for _ in range(2):
        host.run(KINDS["docker"], ["true"])
    said = subprocess.run(
        ["git", "config", "--file", str(home / ".gitconfig"), "--get-all", "safe.directory"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert said.stdout == f"{host.workspace}\n", "once"


@pytest.mark.parametrize("kind", KINDS)
def test_an_environment_is_made_and_found(host, kind):
    recipe = (
        "mkdir -p '$(VENV)/bin'; printf '#!/bin/sh\\necho \"$$0\" ran' >'$(VENV)/bin/tool'; chmod +x '$(VENV)/bin/tool'"
    )
    (host.workspace / "Makefile").write_text(f"setup:\n\t@{recipe}\n")
    done = host.run(KINDS[kind], ["tool"], setup=True)
    assert done.returncode == 0, done.stderr
    place = done.stdout.removesuffix("/bin/tool ran\n")
    if kind == "none":
        assert place == f"{host.workspace}/.venv"
    else:
        assert place.startswith("/tmp/ridgeline-venv.")
        assert not Path(place).exists(), "Apptainer shows the host's /tmp: nothing stays there"
    prepared = dataclasses.replace(KINDS[kind], venv="/usr")
    assert host.run(prepared, ["bash", "-c", "echo $PATH"], setup=True).stdout.startswith("/usr/bin:")


def test_a_project_of_its_own_makes_its_environment_as_it_says(host):
    recipe = (
        'mkdir -p "$VENV/bin" && printf \'#!/bin/sh\\necho made\\n\' > "$VENV/bin/tool" && chmod +x "$VENV/bin/tool"'
    )
    pool = dataclasses.replace(KINDS["docker"], setup=recipe)
    done = host.run(pool, ["tool"], setup=True)
    assert (done.returncode, done.stdout) == (0, "made\n"), done.stderr
    failing = host.run(dataclasses.replace(pool, setup="false"), ["tool"], setup=True)
    assert (failing.returncode, failing.stdout) == (3, "")
    assert "`false` failed; see above" in failing.stderr


def test_an_installed_ridgeline_installs_itself_from_where_it_came(monkeypatch):
    monkeypatch.setattr(command, "INSTALLED", True)
    source = "git+https://github.com/OWNER/ridgeline@" + "0" * 40
    monkeypatch.setattr(command, "origin", lambda: source)
    text = wrapped(KINDS["docker"], ["true"])
    assert f"pip install --quiet '\"'\"'ridgeline @ {source}'\"'\"''" in text
    assert "make --silent setup" not in text
    cpus = Pool("cpu", NO_GPU, (0,))
    assert f"ridgeline[cpu] @ {source}" in wrapped(cpus, ["true"], 0), "no image brings a torch"
    monkeypatch.setattr(command, "origin", lambda: "")
    with pytest.raises(PoolsError, match="give it `venv`.*or `setup`"):
        wrapped(KINDS["docker"], ["true"])
    wrapped(dataclasses.replace(KINDS["docker"], venv="/opt/venv"), ["true"])


@pytest.mark.parametrize(
    ("told", "source"),
    [
        ('{"url": "https://h/o/r", "vcs_info": {"vcs": "git", "commit_id": "ab12"}}', "git+https://h/o/r@ab12"),
        ('{"url": "file:///somewhere", "dir_info": {"editable": true}}', ""),
        (None, ""),
        ("{", ""),
    ],
)
def test_where_it_came_from_is_what_pip_noted(monkeypatch, told, source):
    noted = SimpleNamespace(read_text=lambda name: told if name == "direct_url.json" else None)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: noted)
    assert origin() == source


@pytest.mark.parametrize("fit", [True, False])
def test_the_node_is_looked_at_first(host, fit):
    """A node that fails measures all the same: its trials carry the reason to the verdict."""
    fake(host, "python", f'echo "looked: $*"; {"true" if fit else "false"}')
    done = host.run(KINDS["docker"], ["echo", "ran"], preflight=True)
    assert (done.returncode, done.stdout) == (0, "looked: -m ci doctor --node\nran\n")
    assert ("no verdict will rest on times of this node" in done.stderr) is not fit


# ---- the end -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["none", "docker"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_command_which_ends_by_itself(host, kind, number):
    """What ends a job asks it to write its result first; SIGINT arrives as SIGTERM, and is not ignored inside."""
    inner = (
        "trap 'echo asked; exit 5' TERM USR1; grep SigIgn /proc/self/status; echo ready; "
        "while true; do sleep 0.05; done"
    )
    text = wrapped(KINDS[kind], ["bash", "-c", inner], 1, setup=False, root=str(host.root))
    environ = host.environ({"ROCR_VISIBLE_DEVICES": "0"})
    job = subprocess.Popen(["bash", "-c", text], cwd=host.workspace, env=environ, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    ignored = int(job.stdout.readline().split()[1], 16)
    assert not ignored & (1 << (signal.SIGINT - 1))
    assert job.stdout.readline() == "ready\n"
    job.send_signal(number)
    assert job.communicate(timeout=HANGS_S)[0] == "asked\n"
    assert job.returncode == 5


def test_a_killed_jobs_container_is_removed_first(host):
    (host.folder / "bin" / "left").touch()
    host.run(KINDS["docker"], ["true"])
    first, second = (call["argv"] for call in host.calls()[:2])
    assert f"label=ridgeline.workspace={host.workspace}" in first  # type: ignore[operator]
    assert second == ["rm", "--force", "c0ffee"]
    assert f"--label=ridgeline.workspace={host.workspace}" in host.started()


def test_files_that_cannot_be_given_back_are_said(host):
    fake(host, "find", f"echo {host.workspace}/x")
    fake(host, "id", "echo 1000")
    fake(host, "sudo", "exit 1")
    done = host.run(KINDS["none"], ["echo", "ran"])
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert f"{host.workspace}/x belongs to somebody else; as root: chown -hR 1000:1000" in done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_shown(golden, kind):
    text = wrapped(KINDS[kind], ["python", "-m", "ci", "run", "--out", "a b.jsonl"], 2)
    golden(f"pools/{kind}.sh", text)  # type: ignore[operator]
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
