"""What the executing processes share: they list what a source tree has, and execute it one by one.

Requests and answers are JSON lines on stdin and stdout.  Plain names are those of the tree under test; the harness goes
by another name here (benchmarks.naming, which starts such a process).
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from .. import naming
from ..lifetime import end_with_starter
from ..shapes import Json, JsonObject
from ..worker.ran import RanFiles


def begin(tree: Path) -> TextIO:
    """Make this process one that executes code of a tree; where its answers go."""
    end_with_starter(signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what foreign code prints must not mix with the answers
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    naming.open_to(tree)
    import torch

    torch.set_num_threads(1)
    return answers


def serve(
    answers: TextIO,
    ran: RanFiles,
    listed: Callable[[Json], JsonObject],
    executed: Callable[[int], JsonObject],
    said: Callable[[BaseException], str],
) -> None:
    """Answer requests until stdin closes; `ran` of an answer: what was run for it.

    listed: answers "list"; executed: all else, by `index`.  said: one sentence on what either raised.
    """
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": True} | (listed(request) if request["op"] == "list" else executed(request["index"]))
        except BaseException as error:  # SystemExit in foreign code is its failure, not the end of this process
            answer = {"ok": False, "why": said(error)}
        answer["ran"] = ran.new(request["tops"])
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


def home(kernel: Any) -> str:
    """The outermost module that holds an operator: what it imports is the operator's code."""
    held = (name for name, module in sys.modules.items() if vars(module).get(kernel.name) is kernel)
    return min(held, key=lambda name: (name.count("."), name), default="")
