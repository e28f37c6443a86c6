"""What a survey says of a script before it is timed: why it cannot be, or what a reader of the verdict must know."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.adopted.survey import ScriptEnd, SideSurvey, Survey

TIMERS = (
    "triton.testing.do_bench and do_bench_cudagraph, torch.utils.benchmark.Timer, "
    "run_perftest and @perftest of aiter.test_common, flashinfer.testing.bench_gpu_time"
)

NAMES = ("do_bench", "Timer", "perftest", "bench_gpu_time", "perf_report", "autorange")
"""One of these is in a text that uses a timer, under whatever name it imports it."""

NOTHING = ": it times nothing, or by its own loop"

CLOCKS = ("perf_counter", "time.time(", "elapsed_time", "monotonic(", "process_time(")
"""What a loop that times by itself reads."""

ARGUMENTS_CODE = 2
"""Exit code of argparse and click for arguments that do not fit."""


class CannotRun(Exception):
    """The script does not come to a timer on some side; the text says why, and the next step."""


class NothingTimed(Exception):
    """The script ran, and there is nothing to compare; the text says why."""


def refuse(survey: Survey, script: str, text: str = "") -> None:
    """Raises CannotRun or NothingTimed where no closure of both sides can be compared.  text: of the script."""
    for role, side in survey.sides.items():
        if not side.closures:
            _refuse_side(f"{script} ({role})", side.end, text)
    if same := _same_packages(survey):
        name, folder = same[0]
        raise CannotRun(
            f"both sides imported {name} from {folder}, not from their checkouts: it would be compared with itself; "
            "name the folder of a checkout that holds the package with --path, or uninstall it in this Python"
        )
    if not survey.paired:
        counts = ", ".join(f"{role} times {len(side.closures)}" for role, side in survey.sides.items())
        raise NothingTimed(f"{script}: the sides have no closure in common ({counts})")


def _own_loop(text: str) -> str:
    """What a script's text says where it is not known whether it would have come to a timer."""
    by_itself = any(word in text for word in CLOCKS) and not any(word in text for word in NAMES)
    said = "; its own text reads a clock and names no timer that is known here: it times by a loop of its own"
    return said if by_itself else ""


def _refuse_side(where: str, end: ScriptEnd, text: str) -> None:
    if end.kind == "several":
        raise CannotRun(
            f"{where} uses several GPUs ({end.why}); one process a side is measured: "
            "declare the collective as an operator (kernels/spec.py), or start the script for one rank"
        )
    if end.kind == "import":
        raise CannotRun(
            f"{where} cannot be imported: {end.why}; install what is missing, or name its folder with --path"
        )
    if end.kind == "exit" and end.code == ARGUMENTS_CODE:
        raise CannotRun(f"{where} needs other arguments: {_said(end)}; give them after --, as in `-- --size 1024`")
    if end.programs:
        raise CannotRun(f"{where} runs another script, whose timers are not seen: {end.programs[0]}; adopt that one")
    if end.kind == "exit" and end.code:
        raise CannotRun(f"{where} ended with exit code {end.code} before any timer; last it said: {_said(end)}")
    if end.kind:
        raise CannotRun(f"{where} came to no timer: {end.why or _said(end)}{_own_loop(text)}")
    raise NothingTimed(f"{where} ended without a timer that is known here ({TIMERS}){_own_loop(text) or NOTHING}")


def warnings(survey: Survey) -> list[str]:
    """Sentences on what was not as it should be."""
    return [one for role, side in survey.sides.items() for one in _of_side(role, side)]


def _of_side(role: str, side: SideSurvey) -> Iterator[str]:
    end, count = side.end, len(side.closures)
    if end.kind == "late":
        yield f"{role}: {end.why}"
    elif end.kind == "exit" and end.code == 0:
        pass
    elif end.kind:
        how = end.why or f"exit code {end.code}"
        yield f"{role}: the script ended early, after {count} closures: {how}; what it times later is not compared"
    for name, folder in end.elsewhere.items():
        if name not in end.inside:
            yield f"{role}: {name} was imported from {folder}, not from the checkout"
    if end.programs:
        yield f"{role}: the script starts another program, whose timers are not seen: {end.programs[0]}"


def _same_packages(survey: Survey) -> list[tuple[str, str]]:
    """Packages of the repository that both sides took from one folder outside of their checkouts."""
    base, head = (survey.sides[role].end for role in ("base", "head"))
    shared = [name for name, folder in base.elsewhere.items() if head.elsewhere.get(name) == folder]
    return [(name, base.elsewhere[name]) for name in shared if name not in (*base.inside, *head.inside)]


def _said(end: ScriptEnd) -> str:
    lines = [line.strip() for line in end.printed.splitlines() if line.strip()]
    return (lines or ["it printed nothing"])[-1][:300]
