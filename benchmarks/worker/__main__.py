"""The measuring process: reads requests, one JSON line each, and answers each with one line.

Run by path (never imported by the coordinator).  The harness goes by another name here (benchmarks.naming): plain names
are those of the checkout under test.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import resource
import select
import signal
import sys
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal this process gets when its parent dies, linux/prctl.h."""


def main() -> None:
    """REQUESTS ANSWERS CHECKOUT: two descriptors of pipes, and a folder."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from benchmarks import naming

    naming.settle()
    naming.our("benchmarks.worker.__main__").serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])


def serve(requests: int, answers: int, checkout: str) -> None:
    """Serve requests until their pipe closes."""
    die_with_parent()
    if _deserted(requests):
        os._exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in (requests, answers):
        os.set_inheritable(descriptor, False)
    from .. import naming
    from .requests import Service

    naming.open_to(Path(checkout))
    service = Service(checkout)
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            request = json.loads(line)
            answer = _answer(service, request)
            os.write(answers, json.dumps(answer).encode() + b"\n")
            if request["op"] == "quit":
                sys.stdout.flush()
                os._exit(0)  # no destructor of a GPU library may keep a finished process


def _answer(service: Any, request: dict[str, Any]) -> dict[str, Any]:
    limit_s = request["limit_s"]
    faulthandler.dump_traceback_later(max(limit_s - 1.0, limit_s * 0.8), file=sys.stderr)
    try:
        return {"ok": True, "result": service.perform(request["op"], request["fields"])}
    except BaseException as error:  # SystemExit in foreign code is its failure, not the end of this process
        from . import failures

        return failures.answer(error)
    finally:
        faulthandler.cancel_dump_traceback_later()


def die_with_parent() -> None:
    """Be killed when the coordinator is killed (Linux); a process that outlives it would hold the GPU."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _deserted(requests: int) -> bool:
    """Whether nobody can write requests any more: the coordinator was killed before this process was ready."""
    pipe = select.poll()
    pipe.register(requests, 0)
    return any(event & select.POLLHUP for _, event in pipe.poll(0))


if __name__ == "__main__":
    main()
