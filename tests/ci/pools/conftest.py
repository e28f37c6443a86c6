"""A host of a pool: containers are stand-ins that record how they are called and run what is inside on this machine;
/sys, /dev and /etc/podinfo are a folder."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ci.pools.command import wrapped
from ci.pools.file import Isolation

UNIQUE = 0xF2C5_0000_0000_0001
"""Unique id of its first GPU: more than a signed number holds, as real ones are."""

STANDIN = (
    f"#!{sys.executable} -ES\n"
    + """import json, os, subprocess, sys
program, words = os.path.basename(sys.argv[0]), sys.argv[1:]
record = {"program": program, "argv": words, "environ": dict(os.environ)}
open(os.path.join(os.path.dirname(sys.argv[0]), "calls"), "a").write(json.dumps(record) + chr(10))
if program == "docker" and words[0] != "run" or "--entrypoint=chown" in words:
    print("c0ffee" if words[0] == "ps" and os.path.exists(os.path.dirname(sys.argv[0]) + "/left") else "", end="")
    sys.exit()
inner = {"PATH": os.environ["PATH"]}
if program == "docker":
    inner |= dict(word[6:].split("=", 1) for word in words if word.startswith("--env="))
elif program == "apptainer":
    inner |= {k[13:]: v for k, v in os.environ.items() if k.startswith("APPTAINERENV_")}
else:
    inner = dict(os.environ)
inner["HOME"] = os.environ["INSIDE"] if "INSIDE" in os.environ else os.path.dirname(sys.argv[0])
os.execve("/bin/bash", ["bash", "-c", words[-1]], inner)
"""
)


@dataclasses.dataclass
class Host:
    """A machine with stand-ins of the container programs, and a checkout."""

    folder: Path

    @property
    def workspace(self):
        return self.folder / "work space"

    @property
    def root(self):
        return self.folder / "root"

    def run(self, pool, argv, gpus=1, setup=False, preflight=False, **environ):
        if pool.isolation is Isolation.SLURM:  # what an allocation says, unless the test says it
            environ = {"ROCR_VISIBLE_DEVICES": "0", **environ}
        text = wrapped(pool, argv, gpus, setup=setup, preflight=preflight, root=str(self.root))
        return subprocess.run(
            ["bash", "-c", text], cwd=self.workspace, env=self.environ(environ), capture_output=True, text=True
        )

    def environ(self, more):
        return {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "HOME": str(self.folder), **more}

    def calls(self):
        path = self.folder / "bin" / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def started(self):
        """The words with which the container was started."""
        found = [call["argv"] for call in self.calls() if "-c" in call["argv"]]  # type: ignore[operator]
        assert len(found) == 1
        return list(found[0])  # type: ignore[call-overload]

    def add_gpu(self):
        """One more MI300X: render devices are 128, 136, 144, ..."""
        nodes = self.root / "sys/class/kfd/kfd/topology/nodes"
        index = len(list(nodes.iterdir())) - 1
        (nodes / str(index + 1)).mkdir()
        text = f"simd_count 1216\nunique_id {UNIQUE + index}\ndrm_render_minor {128 + 8 * index}\n"
        (nodes / str(index + 1) / "properties").write_text(text)
        (self.root / f"dev/dri/renderD{128 + 8 * index}").touch()

    def podinfo(self, name, text):
        path = self.root / "etc/podinfo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def host(tmp_path):
    """A node with a CPU and four MI300X."""
    (tmp_path / "bin").mkdir()
    for program in ("docker", "apptainer", "srun"):
        (tmp_path / "bin" / program).write_text(STANDIN)
        (tmp_path / "bin" / program).chmod(0o755)
    (tmp_path / "work space").mkdir()
    nodes = tmp_path / "root/sys/class/kfd/kfd/topology/nodes"
    (nodes / "0").mkdir(parents=True)
    (nodes / "0/properties").write_text("cpu_cores_count 96\nsimd_count 0\ndrm_render_minor 0\n")
    (tmp_path / "root/dev/dri").mkdir(parents=True)
    (tmp_path / "root/dev/kfd").touch()
    made = Host(tmp_path)
    for _ in range(4):
        made.add_gpu()
    return made


def fake(host, name, text):
    """Another program of the host, in bash."""
    (host.folder / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
    (host.folder / "bin" / name).chmod(0o755)
