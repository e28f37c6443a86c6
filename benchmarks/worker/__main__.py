"""The measuring process: reads requests, one JSON line each, and answers each with one line.

Run by path (never imported by the coordinator).  The harness goes by another name here (benchmarks.naming): plain names
are those of the checkout under test.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import select
import signal
import sys
from pathlib import Path

FIRST_TO_GO = 1000
"""proc(5), oom_score_adj: where memory runs out, a process that measures ends before the one that reports it."""


def main() -> None:
    """REQUESTS ANSWERS CHECKOUT: two descriptors of pipes, and a folder."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from benchmarks import naming

    naming.settle()
    naming.our("benchmarks.worker.__main__").serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])


def serve(requests: int, answers: int, checkout: str) -> None:
    """Serve requests until their pipe closes.  All that this needs is bound here, before foreign code is imported."""
    from .. import lifetime, naming

    lifetime.end_with(os.getppid())  # a process that outlives the coordinator would hold the GPU
    if _deserted(requests):
        os._exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(FIRST_TO_GO))
    from ..channel import WorkerEnd, error_answer
    from ..naming import RanFiles
    from .requests import Service

    lifetime.keep_orphans()
    channel, leave, flush = WorkerEnd(requests, answers), os._exit, sys.stdout.flush
    naming.open_to(Path(checkout))
    service, say = Service(checkout, RanFiles(Path(checkout)), channel), error_answer
    watch, unwatch = faulthandler.dump_traceback_later, faulthandler.cancel_dump_traceback_later
    log = os.dup(2)  # the traceback of a hang needs a descriptor, whatever became of sys.stderr
    for request in channel.requests():
        limit_s = request["limit_s"]
        watch(max(limit_s - 1.0, limit_s * 0.8), file=log)
        try:
            answer = {"ok": True, "result": service.perform(request["op"], request["fields"])}
        except BaseException as error:  # SystemExit in foreign code is its failure, not the end of this process
            answer = say(error)
        finally:
            unwatch()
        try:
            channel.answer(answer)
        except (TypeError, ValueError, RecursionError) as error:
            channel.answer(say(error))
        if request["op"] == "quit":
            with contextlib.suppress(Exception):
                flush()
            leave(0)  # no destructor of a GPU library may keep a finished process


def _deserted(requests: int) -> bool:
    """Whether nobody can write requests any more: the coordinator was killed before this process was ready."""
    pipe = select.poll()
    pipe.register(requests, 0)
    return any(event & select.POLLHUP for _, event in pipe.poll(0))


if __name__ == "__main__":
    main()
