"""Options that several verbs share, each stated once, and the checks that come before anything is measured."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from benchmarks.shapes import LARGEST
from benchmarks.trial_file import LATEST_MS, REGIMES, ROLES
from ci import log_width
from ci.gpu_locks import device_locks
from ci.harness import HEAPS, TIERS, MeasurePlan, machine_kind
from ci.whole_files import check_parent, check_writable
from kernels import project

PASS, REGRESSION, NO_VERDICT, USAGE = 0, 1, 2, 3
"""Exit codes of judging verbs."""

CPU_ROUNDS, GPU_ROUNDS = 20, 40
"""Rounds in a trial unless asked otherwise: 40 repeat a GPU's median to 0.1 %; a CPU's calls take milliseconds each."""

BURSTS, CPU_BURST_S = 8, 0.05
"""Bursts of an arm in a trial where calls are sustained (benchmarks.plan.BURST_ROUNDS says why 8), and their seconds on
a CPU, whose clock follows its load within a few milliseconds; on a GPU they are benchmarks.plan.BURST_S long."""

LONGEST_DEADLINE_S = 86_400.0
"""Seconds: a step that is allowed more than a day is a mistake."""


WIDEST_ROW = 100_000
"""Columns of a row of a table in a log: more than any has."""


class Parsed(click.ParamType[Any]):
    """What a function makes of a text; its ValueError is a usage error.  A default is taken as it is."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value; a usage error says what is allowed."""
        try:
            return self.parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


def full_hash(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[0-9a-f]{40}", value):
        text = f"{value!r} is not a full commit hash; `git rev-parse HEAD` prints one (40 hex digits)"
        raise click.BadParameter(text, ctx, param)
    return value


def _knob(text: str) -> str:
    """KEY=VALUE, or ROLE.KEY=VALUE for one side."""
    key, _, setting = text.partition("=")
    if not (setting and key.replace(".", "").isidentifier()):
        raise ValueError(f"{text!r}: expected KEY=VALUE, or ROLE.KEY=VALUE for one side, such as num_stages=3")
    return text


class NewPath(click.Path):
    """A path that will be written.  check: raises WriteError where that cannot be."""

    def __init__(self, check: Callable[[Path], object], **kind: Any) -> None:
        super().__init__(path_type=Path, **kind)
        self._check = check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; WriteError if it cannot be written."""
        path = Path(str(super().convert(value, param, ctx)))
        self._check(path)
        return path


NewFile = functools.partial(NewPath, check_writable, dir_okay=False)
NewFolder = functools.partial(NewPath, check_parent, file_okay=False)
"""A file to write, and a folder that is there or will be made: what is above it can be written."""


class Finite(click.FloatRange):
    """A number in a range: click takes NaN for one in every range, and infinity where there is no upper end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error for what is none."""
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value!r} is not a finite number", param, ctx)


SECONDS = Finite(0.1, LONGEST_DEADLINE_S)
"""Of a deadline."""

ANY = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
THERE = click.Path(path_type=Path, exists=True)
FOLDER_THERE = click.Path(path_type=Path, exists=True, file_okay=False)
"""Kinds of paths: whatever is there or not, a file, a folder; what must be there, a folder that must."""


RARE = "Rarely needed"
"""Heading of the options that a newcomer need not read."""


class HeadedOption(click.Option):
    """An option that stands under a heading of its own in the help."""

    def __init__(self, *spelled: Any, heading: str = "Options", **how: Any) -> None:
        super().__init__(*spelled, **how)
        self.heading = heading


class VerbCommand(click.Command):
    """A command whose help has its options by heading, the usual ones first."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write them."""
        records: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                records.setdefault(getattr(parameter, "heading", "Options"), []).append(record)
        for heading, rows in records.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


WORDS = "ridgeline.words"
"""Under this name click's context has what stands behind `--`."""


class WordsCommand(VerbCommand):
    """A command whose words behind `--` belong to a script or a program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut at the first `--`."""
        cut = args.index("--") if "--" in args else len(args)
        ctx.meta[WORDS] = tuple(args[cut + 1 :])
        return super().parse_args(ctx, args[:cut])


def words_behind() -> tuple[str, ...]:
    """What stands behind `--` in the command line of a WordsCommand."""
    words: tuple[str, ...] = click.get_current_context().meta[WORDS]
    return words


class Given(types.SimpleNamespace):
    """What a verb was called with: the value of each of its arguments and options, by the name of its parameter."""


def verb(examples: str, title: str = "Example", **how: Any) -> Callable[[Callable[[Given], int | None]], click.Command]:
    """A function of what is given as a verb, with examples at the end of its help."""

    def made(function: Callable[[Given], int | None]) -> click.Command:
        @functools.wraps(function)
        def called(**values: Any) -> int | None:
            return function(Given(**values))

        how.setdefault("cls", VerbCommand)
        command: Callable[[Any], click.Command] = click.command(epilog=f"\b\n{title}:\n  {examples}", **how)
        return command(called)

    return made


def option(said: str, text: str, kind: Any = None, **how: Any) -> Callable[[Any], Any]:
    """An option as its help shows it: "--machine NAME", or "--case GLOB -> cases" for a parameter of another name.

    A default that is something is shown.
    """
    spelled, _, to = said.partition(" -> ")
    name, _, metavar = spelled.partition(" ")
    how.setdefault("show_default", bool(how.get("default")) and not callable(how["default"]))
    how |= {"type": kind, "metavar": metavar or None, "help": text}
    return click.option(name, *filter(None, [to]), cls=HeadedOption, **how)


def flag(said: str, text: str, **how: Any) -> Callable[[Any], Any]:
    """An option that is given or not."""
    return option(said, text, is_flag=True, **how)


def several(said: str, text: str, kind: Any = None, **how: Any) -> Callable[[Any], Any]:
    """An option that can be given several times."""
    return option(said, text, kind, multiple=True, **how)


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several options as one decorator, in this order."""

    def apply(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


def folder(name: str, default: str, text: str, **how: Any) -> Callable[[Any], Any]:
    """An option that names a folder; default: below the root of the project."""
    return option(name, text, NewFolder(), default=lambda: project.place(default), show_default=default, **how)


def of_project(setting: str) -> Callable[[], Path]:
    """The default of an option that the project's settings can name (kernels.project), from the current folder."""
    return lambda: project.place(getattr(project.around(Path.cwd()), setting))


def project_folder(name: str, setting: str, usual: str, text: str) -> Callable[[Any], Any]:
    """An option that names a folder which the project's settings can name; usual: its name where they do not."""
    return option(name, text, NewFolder(), default=of_project(setting), show_default=usual, heading=RARE)


RESULTS = project_folder("--results", "results", "results", "Folder of asv records.")


def is_missing(results: Path) -> bool:
    """Whether the folder that --results names is not there.  A project's own comes with its first record."""
    source = click.get_current_context().get_parameter_source("results")
    return source is ParameterSource.COMMANDLINE and not results.is_dir()


RECORD = flag("--record", "Record the trials in the project's results, too; else they stay in .ridgeline/trials.")
JSON = flag("--json -> as_json", "Print the result as JSON.")
DRY_RUN = flag("--dry-run", "Say what would be done and do nothing.")
OUT = option("--out", "Trial file to append to.", NewFile())
POLICY = option("--policy -> policy_file", "Thresholds (default: the project's, or ci/policy.toml).", ANY, heading=RARE)
POOLS_FILE = option("--file -> path", "Default: the project's, or ci/runners.toml.", ANY)
CASE = several("--case GLOB -> cases", "Only cases that match (repeatable).")
BACKEND = several("--backend NAME -> backends", "Only this backend (repeatable).")
CASES = together(
    option("--tier", "Which cases: pr takes minutes, nightly is all.", click.Choice(TIERS), default="pr"),
    several("--kernel NAME -> kernels", "Only this kernel (repeatable)."),
    CASE,
    BACKEND,
)
"""Which kernels, cases and backends."""
CHOICE = together(
    CASES,
    option("--seed", "Seed of the inputs.", click.IntRange(0, LARGEST), default=0, show_default=True, heading=RARE),
    option("--deadline SECONDS -> deadline_s", "A step that takes longer is a hang.", SECONDS, heading=RARE),
    several("--set KEY=VALUE -> knobs", "Override a backend's knob (repeatable).", Parsed("knob", _knob)),
    option(
        "--heap",
        "Home of the symmetric heap on GPUs (default: RIDGELINE_HEAP, or auto: the first that works).",
        click.Choice(HEAPS),
        heading=RARE,
    ),
)
"""What is called, and how."""
TIMED = together(
    CHOICE,
    option("--rounds", "Rounds in a trial (default: 40; 20 on a CPU; 8 bursts).", click.IntRange(1, 10000)),
    option(
        "--regime",
        "Calls spaced by a flush of the caches, or sustained: bursts of each arm in turn, at settled power.",
        click.Choice(REGIMES),
        default=REGIMES[0],
        heading=RARE,
    ),
    option("--burst SECONDS -> burst_s", "Shortest length of a burst.", Finite(0.001, 60), heading=RARE),
)
"""What is measured."""
BUDGET = option("--trials", "Most trials to spend (default: the policy's budget).", click.IntRange(1, 1000))
ALL_CASES = flag("--all-cases", "Measure operators too that no changed file can reach.", heading=RARE)
SOURCE = together(
    option("--commit HASH", "The commit this tree is (on a node without git).", callback=full_hash),
    option(
        "--commit-date MS", "Its date in ms since 1970 UTC, with --commit.", click.IntRange(0, LATEST_MS), heading=RARE
    ),
    option("--tree", "This source tree.", FOLDER_THERE, heading=RARE),
)
"""Which checkout, where git cannot say it."""


def plan(given: Given | None = None, **more: Any) -> MeasurePlan:
    """What is measured, by the options of a verb and `more`; what was not asked for keeps its default."""
    wanted = {**vars(given or Given()), **more}
    known = [field.name for field in dataclasses.fields(MeasurePlan)]
    made = MeasurePlan(**{name: wanted[name] for name in known if wanted.get(name) is not None})
    if made.burst_s and made.regime == REGIMES[0]:
        raise click.UsageError("--burst is the length of a burst of sustained calls; it needs --regime sustained")
    return made


def with_rounds(plan: MeasurePlan, kind: str = "") -> MeasurePlan:
    """Rounds and state of the caches by the kind of machine (default: this one), unless asked for.

    A CPU's last level is shared with other tenants and can be hundreds of MB: flushing it takes longer than a call.
    """
    cpu = (kind or machine_kind()) == "cpu"
    rounds, cache, burst_s = (CPU_ROUNDS, "hot", CPU_BURST_S) if cpu else (GPU_ROUNDS, "cold", 0.0)
    rounds = rounds if plan.regime == REGIMES[0] else BURSTS
    cache, burst_s = plan.cache or cache, plan.burst_s or burst_s
    return dataclasses.replace(plan, rounds=plan.rounds or rounds, cache=cache, burst_s=burst_s)


def pairs(option: str, values: tuple[str, ...]) -> dict[str, str]:
    """LABEL=VALUE arguments by label."""
    by_label = {}
    for value in values:
        key, equals, rest = value.partition("=")
        if not (key and equals and rest):
            raise click.BadParameter(f"{value!r}: LABEL=VALUE is expected", param_hint=option)
        by_label[key] = rest
    return by_label


def wait_for_turn() -> None:
    """Have the GPUs of this machine to ourselves from here to the end of the verb; say on stderr whom we wait for.

    It comes before the verb looks at its checkouts, which may change meanwhile.
    """
    click.get_current_context().with_resource(device_locks(lambda line: click.echo(line, err=True)))


def pythons(given: Given) -> dict[str, str]:
    """The Pythons of the sides that have one of their own, by role."""
    return {role: python for role in ROLES if (python := getattr(given, f"env_{role}"))}


class LogConsole(Console):
    """A console that is no terminal: no escape codes, and a line for each row of a table, however long.

    People search a log for the names of cases, so no cell is cut or wrapped.
    """

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, width=log_width(), highlight=False, force_terminal=False, color_system=None)

    def print(self, *objects: Any, **how: Any) -> None:
        usual = self.width
        self.width = WIDEST_ROW if any(isinstance(one, Table) for one in objects) else usual
        super().print(*objects, **how)
        self.width = usual


def print_json(value: object) -> None:
    """A result for machines, on stdout."""
    click.echo(json.dumps(value, indent=1))


def out_console() -> Console:
    """Where results go."""
    return Console(highlight=False) if sys.stdout.isatty() else LogConsole()


def err_console() -> Console:
    """Where progress and remarks go."""
    return Console(stderr=True, highlight=False) if sys.stderr.isatty() else LogConsole(stderr=True)
