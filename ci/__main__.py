"""The `ridgeline` command: a verb is a command of a module of `ci.commands`, imported when it is asked for.

A node that only measures has Python, torch, Triton, click and rich; `ridgeline run --out FILE` and `--help` work there.
Exit codes of judging verbs: 0 pass, 1 regression, 2 no verdict, 3 usage or infrastructure error.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import signal
import sys
import threading
import traceback
from typing import Any

import click

# `-m` puts the current folder first, in which somebody else may have a package `benchmarks`
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import lifetime
from ci import log_width

USAGE, INTERRUPTED = 3, 130

DOCUMENTED = (0, 1, 2, USAGE, INTERRUPTED)
"""Exit codes of `ridgeline`; that of a child which a signal killed is none of them."""

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Measure": {
        "check": ("ab:check", "The pull-request job: still right, slower, by how much, on which shapes."),
        "ab": ("ab", "Compare two commits in lock-step, or judge recorded trials."),
        "run": ("run", "Measure this commit and record it."),
        "verify": ("doctor:verify", "Is every backend right in every case here? Times nothing."),
        "bisect": ("bisect", "Which commit, knob or environment changed a speed, with confidence."),
        "isa": ("isa", "What the compiler emits for MI300X, MI355X and H200; needs no GPU."),
        "emulate": ("emulate", "Any Triton program or test suite on an emulated MI300X or MI355X; needs no GPU."),
        "adopt": ("adopt", "A benchmark script of any repository under paired A/B, unchanged."),
        "gate": ("gate", "Judge one recorded commit against another; measures nothing."),
    },
    "Tune": {
        "sweep": ("sweep", "Points (cases x knobs) against the default: which is best, how sure that is."),
        "tune": ("sweep:tune", "Write tables of tuned knobs from a sweep, and verify them again."),
        "study": ("sweep:study", "Declared experiments: their points, record, table and figures."),
    },
    "Show": {
        "site": ("site", "Build the dashboard from the records."),
        "plot": ("site:plot", "Draw a figure of the records for a comment or a paper."),
        "table": ("table", "The maths of comparison tables: ratios, means, wins, groups, regret."),
        "report": ("github:report", "Render a report file, or post it as a pull request's comment."),
        "detect": ("detect", "Find where the level of a series in a CSV changed."),
    },
    "Set up": {
        "doctor": ("doctor", "What this machine is, what can be measured on it, what to repair."),
        "bringup": ("doctor:bringup", "First contact with a node: heap, fences, RCCL, each backend."),
        "init": ("init", "Set Ridgeline up in a repository of your own."),
    },
    "Events of the history": {
        "events list": ("events", "What changed, since when, why, and who looks after it."),
        "events ack": ("events:ack", "Acknowledge an event: somebody looks after it."),
        "events accept": ("events:accept", "Its new level is the one to hold from now on."),
    },
    "Jobs, here or on Slurm": {
        "jobs submit": ("jobs:submit", "Run a `ridgeline` command as a job."),
        "jobs list": ("jobs", "What was submitted from here, and how it ended."),
        "jobs cancel": ("jobs:cancel", "End jobs with everything they started."),
    },
    "Records": {
        "records add": ("records:add", "Turn trial files, measured anywhere, into asv records."),
        "records import": ("records:import_", "Bring in what benchmark programs of others wrote."),
        "records export": ("records:export", "Records and derived units as Parquet, for any engine."),
        "records push": ("records:push", "Commit records and push them to a branch."),
        "records rewrite": ("records:rewrite", "Write all records in the form of today, and what asv reads."),
    },
    "What workflows and their maintainers call": {
        "ci pools": ("pools", "The machines behind a label or a partition, and what runs there."),
        "ci start": ("github:start", "Measure one commit on the GPU pools, through GitHub."),
        "ci runner": ("pools:runner", "Serve GitHub's queue from Slurm: a short-lived runner for each job."),
        "ci leg": ("pools:leg", "What a pool does for a pull request: compare, verify what the change tunes."),
        "ci night": ("pools:night", "What a pool does in a night: look, measure, measure what was missed."),
        "ci wait": ("github:wait", "Wait until a machine takes a job of a workflow."),
        "ci sift": ("gate:sift", "Keep the trials that fit the run that measured them."),
        "ci command": ("github:command", "Answer `/ridgeline ...` on a pull request."),
    },
}
"""Every verb by the group in which people look for it: MODULE or MODULE:COMMAND below ci.commands, what it is for."""

VERBS = {verb: found for group in GROUPS.values() for verb, found in group.items()}

FORMERLY = {"record": "records add"} | {
    verb.split()[1]: verb for verb in VERBS if " " in verb and verb.split()[1] not in ("list", "add", "rewrite")
}
"""Verbs that once stood alone, and still may: their names of today."""

HIDDEN = ("report", "table", "detect", "bringup")
"""Verbs that stand in the guide of those who need them, and not in the help of all: github.md, tables.md, history.md,
first_node.md."""

LISTED_ALONE = ("events", "jobs")
"""Groups that list what there is where no verb of theirs is named."""

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


class Verbs(click.Group):
    """Usage errors leave with 3: 1 and 2 are verdicts here.  So does a crash, which is not a regression."""

    def __init__(self, *args: Any, before: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._before = before
        self._verbs = [verb for verb in VERBS if verb.startswith(before)]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*dict.fromkeys(verb.removeprefix(self._before).split()[0] for verb in self._verbs)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A verb of one word or two, or the group of those that begin with this word."""
        verb = self._before + cmd_name
        if verb in VERBS or not self._before and verb in FORMERLY:
            module, _, attribute = VERBS[FORMERLY.get(verb, verb)][0].partition(":")
            found = importlib.import_module(f"ci.commands.{module}")
            command: click.Command = getattr(found, attribute or module.split(".")[-1])
            return command
        if verb in self.list_commands(ctx):
            alone = "  Without a verb: list." if verb in LISTED_ALONE else ""
            return Verbs(verb, before=f"{verb} ", help=f"The verbs that begin with `{verb}`.{alone}")
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Both words of a verb at once, so that a job, a test or a usage error has one name for it."""
        for verb, rest in ((" ".join(args[:2]), args[2:]), (f"{args[0]} list", args[1:])):
            if verb in VERBS and args[1:2] not in ([one] for one in ctx.help_option_names):
                return super().resolve_command(ctx, [verb, *rest])
        if self.get_command(ctx, args[0]) is None:
            known = self._verbs if self._before else [*self.list_commands(ctx), *FORMERLY]
            near = difflib.get_close_matches(self._before + args[0], known, 1)
            meant = f": did you mean `ridgeline {near[0]}`? " if near else "; "
            ctx.fail(f"there is no verb {args[0]!r}{meant}`{ctx.command_path} --help` lists the verbs")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, (verb for verb in self._verbs if self._before or " " not in verb)))
        below: dict[str, list[str]] = {}
        for title, group in GROUPS.items():
            own = {verb: text for verb, (_, text) in group.items() if verb in self._verbs}
            if not self._before and all(" " in verb for verb in own):
                first = next(iter(own)).split()[0]
                below[f"{first}".ljust(width)] = [title, ", ".join(verb.split()[1] for verb in own)]
            elif rows := [(verb.ljust(width), text) for verb, text in own.items() if verb not in HIDDEN]:
                with formatter.section(title):
                    formatter.write_dl(rows)
        if below:
            with formatter.section("Verbs of two words"):
                formatter.write_dl([(name, f"{title}: {verbs}.") for name, (title, verbs) in below.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()  # not as the interpreter ends, which would leave with a code of its own
            return code
        except BrokenPipeError as error:  # click would leave with 1, which is a regression here
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.ClickException(
                "whoever read the output is gone: its rest was not printed; the files that were written are whole"
            ) from error

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        if not sys.stdout.isatty():
            kwargs.setdefault("terminal_width", log_width())
        if threading.current_thread() is threading.main_thread():
            lifetime.interrupt_on(signal.SIGTERM)  # a queue that ends a job: as tidy as Ctrl-C
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


def _say(error: Exception) -> None:
    """A sentence for what we foresaw; for everything else the traceback too."""
    from ci.bars import printable  # rich, which `ridgeline --help` need not wait for

    text = f"Error: {_of_system(error) if isinstance(error, OSError) else error}"
    if not (isinstance(error, OSError) or type(error).__module__.startswith(OURS)):
        text = f"Error: {type(error).__name__}: {error}; this is a defect of Ridgeline, please report it"
        text = "".join(traceback.format_exception(error)) + text
    click.echo("\n".join(map(printable, text.splitlines())), err=True)


def _of_system(error: OSError) -> str:
    """What the operating system refused, of which file, and what to do."""
    what = f"{error.filename}: " if error.filename else ""
    return f"{what}{error.strerror or error}; {NEXT_STEP.get(error.errno or 0, 'name another file or folder')}"


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
