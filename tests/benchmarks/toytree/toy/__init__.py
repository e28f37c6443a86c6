"""Small kernels for the tests of the harness; each call can be logged to the file named in TOY_LOG."""

import os
from pathlib import Path

import torch

TREE = Path(__file__).parent.parent.name
"""Name of the folder this package lies in: tells two trees apart in the log."""


def log(*words):
    """Append a line to the log, if there is one."""
    if os.environ.get("TOY_LOG"):
        with open(os.environ["TOY_LOG"], "a") as file:
            file.write(" ".join([TREE, *map(str, words)]) + "\n")


def doubled(inputs):
    """A right way to double x: the output buffer, and the call."""
    out = torch.empty_like(inputs["x"])
    return out, lambda: torch.mul(inputs["x"], 2, out=out)
