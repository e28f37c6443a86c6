"""A repository with an operator whose calls sleep: its times are the same on every machine, and need no CPU."""

from __future__ import annotations

from tests import kit
from tests.ci.isa.documents import change

FILES = {
    "pyproject.toml": '[tool.ridgeline]\nkernels = ["toys"]\n',
    ".gitignore": "__pycache__/\n.ridgeline/\nresults/\nsite/\n",
    "toys/__init__.py": "",
    "toys/doze/work.py": '''"""The work of doze."""

import time

import torch


def rest(x, ticks, out):
    time.sleep(ticks / 1000)
    return torch.neg(x, out=out)
''',
    "toys/doze/layout.py": '''"""How inputs are laid out."""


def laid_out(x):
    return x


def name():
    return "rows"
''',
    "toys/doze/__init__.py": '''"""Sleeps, then negates."""

import torch

from kernels.spec import Case, Cost, Kernel, Tolerance
from toys.doze.layout import laid_out
from toys.doze.work import rest

doze = Kernel("doze", cases=[Case("n64", tier="pr", n=64, dtype="fp32")], tolerance=Tolerance(1e-6, 1e-5))


@doze.inputs
def inputs(case, seed):
    return {"x": torch.rand(case.n)}


@doze.cost
def cost(case):
    """One negation per element."""
    return Cost(flops=case.n, hbm_bytes=8 * case.n)


@doze.reference
def reference(case, inputs):
    return -inputs["x"]


def config(case, arch):
    return {"ticks": 8, "chunk": 64}


@doze.backend("torch", config=config)
def negated(case, inputs, *, ticks: int = 1, chunk: int = 1):
    x, out = inputs["x"], torch.empty_like(inputs["x"])
    return lambda: rest(laid_out(x), ticks, out)
''',
}

KNOB = {"toys/doze/__init__.py": [('"ticks": 8, "chunk": 64', '"ticks": 64, "chunk": 32')]}
"""One knob that matters, and one that does not."""

COPIED = """


def copied(x):
    import time

    time.sleep(0.06)
    return x.clone()


def laid"""

COPY = {
    "toys/doze/layout.py": [
        ("    return x\n", "    return copied(x)\n"),
        ('"rows"', '"lines"'),
        ("\n\n\ndef laid", COPIED),
    ],
    "toys/doze/work.py": [("(x, ticks, out):\n", "(x, ticks, out):\n    assert out.shape == x.shape\n")],
}
"""An extra copy, which is slow here, in one of two files that change; without its function its call does not run."""


def repository(folder):
    """The first commit, on branch main."""
    return kit.repository(folder, **FILES)


def changed(folder, edits):
    """Edit files; every edit must apply."""
    for name, pairs in edits.items():
        change(folder / name, *pairs)
