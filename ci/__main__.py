"""The `ridgeline` command: a verb is a module of `ci.commands`, imported when it is asked for.

A node that only measures has Python, torch, Triton, click and rich; `ridgeline run --out FILE` and `--help` work there.
Exit codes of judging verbs: 0 pass, 1 regression, 2 no verdict, 3 usage or infrastructure error.
"""

from __future__ import annotations

import errno
import importlib
import keyword
import os
import signal
import sys
import threading
import traceback
from typing import Any

import click

from benchmarks import lifetime

USAGE, INTERRUPTED = 3, 130

DOCUMENTED = (0, 1, 2, USAGE, INTERRUPTED)
"""Exit codes of `ridgeline`; that of a child which a signal killed is none of them."""

VERBS = {
    "ab": "Compare two commits in lock-step, or judge recorded trials.",
    "accept": "Accept an event: its new level is the one to hold from now on.",
    "ack": "Acknowledge an event: somebody looks after it.",
    "adopt": "A benchmark script of any repository under paired A/B, unchanged.",
    "bisect": "Which commit, knob or environment changed a speed, with confidence.",
    "bringup": "First contact with a node: heap, fences, vendor packages, each backend.",
    "canary": "Test the gate with known changes, and record how it judges them.",
    "cancel": "End jobs with everything they started.",
    "check": "The pull-request job: still right, slower, by how much, on which shapes.",
    "command": "Answer `/ridgeline ...` from people with write access on a pull request.",
    "detect": "Find where the level of a series in a CSV changed.",
    "doctor": "What this machine is, what can be measured on it, what to repair.",
    "events": "What changed over the history, since when, why, and who looks after it.",
    "export": "Records and derived units as Parquet, CSV or JSON, for any engine.",
    "gate": "Judge one recorded commit against another; measures nothing.",
    "import": "Bring in what asv, nccl-tests, hyperfine and others measured.",
    "init": "Set Ridgeline up in a repository of your own.",
    "isa": "What the compiler emits for MI300X, MI355X and H200; needs no GPU.",
    "jobs": "The jobs that were submitted from here, and how they ended.",
    "leg": "What a pool does for a pull request: compare, then verify the tuned entries whose code changed.",
    "night": "What a pool does in a night: look, measure, test the gate with known changes.",
    "plot": "Draw a figure of the records for a comment or a paper.",
    "pools": "The machines behind a label or a partition, and what runs there.",
    "push": "Commit records and push them to a branch.",
    "record": "Turn trial files, measured anywhere, into asv records.",
    "reopen": "Reopen an event: it needs somebody again.",
    "report": "Render a report file, or post it as a pull request's comment.",
    "run": "Measure this commit and record it.",
    "runner": "Serve GitHub's queue from Slurm: a short-lived runner for each job.",
    "sift": "Keep the trials that fit the run that measured them.",
    "site": "Build the dashboard from the records.",
    "start": "Measure one commit on the GPU pools, through GitHub.",
    "study": "Declared experiments: their points, record, table and figures.",
    "submit": "Run a `ridgeline` command as a job, here or on a Slurm cluster.",
    "sweep": "Measure points (cases x knobs) against the default: which is best, and how sure that is.",
    "table": "The maths of comparison tables: ratios, means, wins, groups, regret.",
    "tune": "Write tables of tuned knobs from a sweep, and verify them again.",
    "verify": "Is every backend right in every case here? Times nothing.",
    "wait": "Wait until a machine takes a job of a workflow.",
}
"""Every verb, and what it is for."""

ROOMS: dict[str, str] = {
    "accept": "history.decide",
    "ack": "history.decide",
    "adopt": "adopting.adopt",
    "bisect": "history.bisect",
    "canary": "machines.canary",
    "cancel": "jobs.cancel",
    "command": "pull_requests.command",
    "detect": "history.detect",
    "events": "history.events",
    "export": "records.export",
    "import": "records.import_",
    "init": "projects.init",
    "jobs": "jobs.listing",
    "leg": "machines.leg",
    "night": "machines.night",
    "plot": "figures.plot",
    "pools": "machines.pools",
    "push": "records.push",
    "reopen": "history.decide",
    "runner": "machines.runner",
    "sift": "records.sift",
    "start": "machines.start",
    "study": "sweeps.study",
    "submit": "jobs.submit",
    "sweep": "sweeps.sweep",
    "table": "sweeps.table",
    "tune": "sweeps.tune",
    "wait": "machines.start",
}
"""Verbs that are not the one command of a module of their name: the module below ci.commands that has them."""

LONGEST_ERROR = 10_000
"""Characters of an error that are printed."""

NEXT_STEP = {
    errno.ENOSPC: "make room, and run it again",
    errno.EDQUOT: "make room, and run it again",
    errno.EFBIG: "raise the limit for files (ulimit -f), and run it again",
    errno.EMFILE: "raise the limit for open files (ulimit -n), and run it again",
    errno.EACCES: "ask for the right to it, or name another",
    errno.EROFS: "name a folder that can be written",
}
"""What to do about what the operating system refused."""

OURS = ("ci.", "benchmarks.", "kernels.")
"""Modules whose exceptions are sentences for people; any other exception is a defect of Ridgeline."""


class ReaderGone(click.ClickException):
    """Nobody reads what is printed any more, as behind `| head`."""

    def __init__(self) -> None:
        super().__init__(
            "whoever read the output is gone: its rest was not printed; the files that were written are whole"
        )


class Verbs(click.Group):
    """Usage errors leave with 3: 1 and 2 are verdicts here.  So does a crash, which is not a regression."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"ci.commands.{ROOMS.get(cmd_name, cmd_name)}")
        found: click.Command = getattr(module, _attribute(cmd_name))
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()  # not as the interpreter ends, which would leave with a code of its own
            return code
        except BrokenPipeError as error:  # click would leave with 1, which is a regression here
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise ReaderGone from error

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _interrupted)  # a queue that ends a job: as tidy as Ctrl-C
            lifetime.end_with_starter()
        try:
            code = super().main(*args, **kwargs) or 0
            sys.exit(code if code in DOCUMENTED else USAGE)
        except (click.exceptions.Abort, KeyboardInterrupt):
            sys.exit(INTERRUPTED)
        except click.ClickException as error:
            error.show()
            sys.exit(USAGE)
        except Exception as error:
            _say(error)
            sys.exit(USAGE)


def _interrupted(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _attribute(verb: str) -> str:
    """The name of a verb's command in its module: `import` is a word of Python."""
    return f"{verb}_" if keyword.iskeyword(verb) else verb


def _say(error: Exception) -> None:
    """A sentence for what we foresaw; for everything else the traceback too."""
    if isinstance(error, OSError) or type(error).__module__.startswith(OURS):
        said = _of_system(error) if isinstance(error, OSError) else str(error)
        click.echo(f"Error: {escaped(said)}", err=True)
        return
    click.echo(escaped("".join(traceback.format_exception(error))), err=True, nl=False)
    said = escaped(f"{type(error).__name__}: {error}")
    click.echo(f"Error: {said}; this is a defect of Ridgeline, please report it", err=True)


def _of_system(error: OSError) -> str:
    """What the operating system refused, of which file, and what to do."""
    what = f"{error.filename}: " if error.filename else ""
    return f"{what}{error.strerror or error}; {NEXT_STEP.get(error.errno or 0, 'name another file or folder')}"


def escaped(text: str) -> str:
    """Text that may hold foreign words, for a terminal: unprintable characters as escapes, a bounded length."""
    shown = "".join(one if one.isprintable() or one in "\n\t" else ascii(one)[1:-1] for one in text)
    return shown if len(shown) <= LONGEST_ERROR else f"{shown[:LONGEST_ERROR]} ..."


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Run `ridgeline VERB --help` for an example of each.",
)
@click.version_option(package_name="ridgeline")
def main() -> None:
    """Find performance regressions of GPU kernels and collectives: paired, exact, on every commit."""


if __name__ == "__main__":
    main()
