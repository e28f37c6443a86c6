"""`ridgeline bisect`: which commit (knob, environment) changed a speed, by paired trials and how sure that is."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np

from ci import harness, programs
from ci.bars import ProgressBars
from ci.bisect import axes
from ci.bisect.axes import FEWEST, Axis, LiveTrials
from ci.bisect.search import (
    SURE,
    Ask,
    Belief,
    BisectError,
    RowPlace,
    SearchRules,
    SearchState,
    TrialOutcome,
    culprit,
    same_code,
    search,
)
from ci.commands.measuring import here
from ci.git.repository import Repository
from ci.harness import MeasurePlan, again, machine_kind, measure
from ci.history import reading, triage, words
from ci.history.types import EventKind
from ci.judging import policy
from ci.judging.reach import file_labels
from ci.options import (
    DRY_RUN,
    JSON,
    NO_VERDICT,
    OUT,
    PASS,
    POLICY,
    RARE,
    RESULTS,
    TIMED,
    Given,
    err_console,
    of_project,
    option,
    plan,
    print_json,
    verb,
    wait_for_turn,
    with_rounds,
)
from ci.programs import ProgramRequest
from ci.report.words import percent, plural
from kernels import project

FOLDER = ".ridgeline/bisect"
"""Below the root of the project: trial files, named by what is searched: the same command goes on with its own."""

NOISE = 3.0
"""Typical scale of a trial's log-ratio / the policy's `trial_noise`, which leaves out what the rounds explain: recorded
A/A trials of H200s have 0.08 to 0.6 % where the policy says 0.1 % (2026-11-20)."""

LEAST = 1e-4
"""Smallest step that can be asked for: a trial of 40 rounds repeats to 0.1 % at best, so that less takes hundreds."""

AXES = ("commits", "knob", "triton", "env")

EXAMPLES = """ridgeline bisect v1.2 main --case gemm/n4096_k14336_m64_fp16
  ridgeline bisect --event 3f2a
  ridgeline bisect --axis knob num_warps=4,8 num_stages=2,3 --case gemm/n4096_k14336_m64_fp16
  ridgeline bisect --axis triton env36/bin/python env37/bin/python env38/bin/python --case gemm/n4096_k14336_m64_fp16"""


@verb(EXAMPLES)
@click.argument("ends", nargs=-1, metavar="GOOD BAD")
@option("--axis", "What may be to blame.", click.Choice(AXES), default=AXES[0])
@option("--event ID", "Ends, kernel, case and backend of an event (`ridgeline events`).")
@TIMED
@option("--trials -> most", "Most to spend.", click.IntRange(1, 1000), default=60)
@option("--smallest SHARE", "Least step looked for, such as 0.01 (policy).", click.FloatRange(LEAST, 1.0))
@option("--program NAME", "A benchmark program of ridgeline.toml in place of operators.", heading=RARE)
@POLICY
@OUT
@RESULTS
@JSON
@DRY_RUN
def bisect(given: Given) -> int:
    """Find the commit between GOOD and BAD that changed a speed, trial by trial, until it is 99 % sure.

    Each trial compares a commit with GOOD in lock-step, the one that is as likely before the step as behind it.  Both
    ends come first, and a fresh trial of the last good and the first bad commit last.  Commits with equal code cost
    nothing; those that cannot be measured are left out, and the answer is then a range.  Several cases count together,
    by the geometric mean of their ratios.  The same command goes on where it was interrupted.

    --axis knob: NAME=GOOD,BAD for each knob, changed in this order; triton, env: Pythons in order, the good one
    first.

    Exit code 0: answered (found, or there is no step); 2: the trials did not suffice; 3: usage or infrastructure.
    1 is not used: a search that finds a regression did its work.
    """
    if not given.dry_run:
        wait_for_turn()
    ends, planned = given.ends, _planned(given)
    if given.event:
        ends, planned = asked_of_event(given, planned)
    request, thresholds = _program(given, planned), policy.load(given.policy_file)
    if request:
        planned = dataclasses.replace(planned, kernels=(request.name,), rounds=given.rounds or policy.PROGRAM_ROUNDS)
    if not (planned.cases or planned.kernels):
        raise click.UsageError(
            "say what became slower: --case KERNEL/CASE, --kernel NAME, --program NAME, or --event ID"
        )
    row = _axis(given.axis, ends, planned, request)
    kind = machine_kind() + policy.PROGRAM * bool(request)
    rules = _rules(thresholds, planned.kernels, given.most, given.smallest, kind)
    file = given.out or _file(given.axis, row, planned)
    if given.dry_run:
        return print_plan(row, rules, file)
    measuring = request.measure if request else measure
    last = searched_live(row, planned, rules, file, given.as_json, measuring)
    step = last.answer
    if step and step.high == step.low + 1 and step.shift > 0 and given.axis == AXES[0] and not request:
        what = harness.options(case=planned.cases) or harness.options(kernel=planned.kernels)
        pair = row.places[step.low].short, row.places[step.high].short
        click.echo(f"`ridgeline ab {shlex.join([*pair, *what])}` says why", err=given.as_json)
    return PASS if last.answer else NO_VERDICT


# ---- what is asked ------------------------------------------------------------------------------------------------


def asked_of_event(given: Given, plan: MeasurePlan) -> tuple[tuple[str, str], MeasurePlan]:
    """The ends that an event asks for, and what is measured.

    What the plan names already stays; else it is the series that moved most, in any tier.  Raises TriageError,
    BisectError, GitError.
    """
    if given.ends:
        raise click.UsageError(f"--event names the ends itself; leave out {' '.join(given.ends)}")
    with ProgressBars(err_console(), "reading the history"):
        history = reading.history(given.results, None, triage.load(of_project("events")()))
    events = {event.id: event for event in history.events}
    event = events[triage.chosen(given.event, events)]
    if event.kind is not EventKind.KERNEL or not event.last_good.hash:
        raise BisectError(
            f"the event {event.id} ({event.kind}) has no good commit of an operator before it; name both ends "
            "yourself: `ridgeline bisect --help`"
        )
    repository = Repository(Path.cwd())
    good, bad = (repository.resolve(end.hash).hash for end in (event.last_good, event.first_bad))
    err_console().print(f"{words.headline(event)}; between {good[:8]} and {bad[:8]}", markup=False)
    key = max(event.moved, key=lambda moved: abs(moved.step.ratio - 1)).key
    chosen = dataclasses.replace(
        plan,
        tier="nightly",
        kernels=plan.kernels or (key.kernel,),
        cases=plan.cases or (f"{key.kernel}/{key.case}",),
        backends=plan.backends or (key.backend,),
    )
    return (good, bad), chosen


def _program(given: Given, planned: MeasurePlan) -> ProgramRequest | None:
    """The benchmark program that is asked for by its name, or by an event of it; None for operators."""
    settings = project.around(Path.cwd())
    declared = {table["name"] for table in settings.programs}
    name = given.program or next((kernel for kernel in planned.kernels if kernel in declared), None)
    if not name:
        return None
    if set(planned.kernels) - {name}:
        raise click.UsageError(f"--kernel {planned.kernels[0]} is no case of the program {name}")
    programs.refuse_choices(vars(given), but=("kernels", "cases", "backends"))
    return programs.declared_program(settings, name)


def _axis(kind: str, ends: Sequence[str], planned: MeasurePlan, request: ProgramRequest | None) -> Axis:
    """The row of places that the arguments name."""
    if kind == "commits":
        if len(ends) != FEWEST:
            raise click.UsageError(
                f"{len(ends)} commits given; name two, the good one first, or an event: `ridgeline bisect --help`"
            )
        repository = Repository(Path.cwd())
        if request:
            by_files = functools.partial(programs.labels, request.program, repository)
            return axes.commit_axis(repository, ends[0], ends[1], by_files, keeps=bool(request.program.build))
        by_code = functools.partial(file_labels, repository, kernels=planned.kernels)
        return axes.commit_axis(repository, ends[0], ends[1], by_code)
    if kind == "knob":
        if not ends:
            raise click.UsageError("--axis knob needs the knobs that differ, such as num_warps=4,8 num_stages=2,3")
        return axes.knob_axis(here(), ends)
    return axes.python_axis(here(), _pythons(ends, kind), sys.executable)


def _pythons(paths: Sequence[str], kind: str) -> list[str]:
    if len(paths) < FEWEST:
        raise click.UsageError(f"--axis {kind} needs two Pythons or more in their order, such as env36/bin/python")
    absent = [path for path in paths if shutil.which(path) is None]
    if absent:
        raise click.UsageError(f"{absent[0]!r} is no program that can be run; name the Python of an environment")
    pythons = [os.path.abspath(path) for path in paths]  # not resolved: a link of a venv is what makes it one
    if len(set(pythons)) < len(pythons):
        raise click.UsageError("a Python is named twice; name each once, in the order of their versions")
    return pythons


def _planned(given: Given) -> MeasurePlan:
    """The plan, with kernel and backend of cases that name them: KERNEL/CASE, or KERNEL/BACKEND/CASE as reports do."""
    kernels, backends, cases = list(given.kernels), list(given.backends), []
    for text in given.cases:
        *named, case = text.split("/")
        kernels += named[:1]
        backends += named[1:2]
        cases.append("/".join([*named[:1], case]))
    unique = {"kernels": tuple(dict.fromkeys(kernels)), "backends": tuple(dict.fromkeys(backends))}
    return with_rounds(plan(given, cases=tuple(cases), **unique))


def _rules(rules: policy.Policy, kernels: Sequence[str], most: int, smallest: float | None, kind: str) -> SearchRules:
    """By the policy for this kind of machine."""
    settings = rules.settings(kernels[0] if len(kernels) == 1 else "", kind)
    return SearchRules(smallest or max(settings.smallest_effect, LEAST), NOISE * settings.trial_noise, most)


def _file(kind: str, axis: Axis, planned: MeasurePlan) -> Path:
    searched = repr((kind, [place.name for place in axis.places], dataclasses.astuple(planned)))
    return project.place(f"{FOLDER}/{kind}-{hashlib.sha256(searched.encode()).hexdigest()[:12]}.jsonl")


# ---- what comes of it ----------------------------------------------------------------------------------------------


def searched_live(
    axis: Axis, planned: MeasurePlan, rules: SearchRules, file: Path, as_json: bool, measuring: axes.Measuring = measure
) -> SearchState:
    """Search, and print what it came to; its last state."""
    console = err_console()
    live = LiveTrials(axis, planned, file, console, measuring)
    if before := live.before():
        console.print(f"going on with the {len(before)} trials of {file}")

    def report(state: SearchState) -> None:
        for line in progress(state, axis.what):
            console.print(line, soft_wrap=True, markup=False, highlight=False)

    state = search(axis.places, axis.known, rules, live, before, report)
    console.print(f"the trials are in {file}")
    if as_json:
        print_json(document(state))
    else:
        onward = f"`{again(trials=2 * rules.most)}` goes on"
        click.echo(answer(state, axis.what, onward))
    return state


def print_plan(axis: Axis, rules: SearchRules, file: Path) -> int:
    """What would be searched: every place, and whether its code may differ from that of the one before."""
    may_differ = [True, *(not equal for equal in same_code(axis.known, {}))]
    for place, differs in zip(axis.places, may_differ, strict=True):
        click.echo(f"{place.short}  {'may differ' if differs else 'equal code'}  {place.subject}".rstrip())
    click.echo(f"{plural(len(axis.places) - 1, axis.what)}, {sum(may_differ)} places with code that may differ")
    click.echo(f"would take at most {rules.most} trials, into {file}")
    return PASS


# A search for people: after every trial what it came to, who is suspected, what is next; and as JSON.

TOP = 5
"""Suspects that are shown; --json has all of the 99 % set."""


def progress(state: SearchState, what: str) -> Iterator[str]:
    """The last trial, the suspects, and what is next."""
    if state.outcomes:
        yield f"trial {state.trials}: {outcome_text(state.outcomes[-1], state.places)}"
        if state.answer is None:
            yield f"{suspects_text(state, what)}; trials scatter by {100 * state.belief.noise:.2g} %"
    if isinstance(ask := state.then, Ask):
        low, high = state.places[ask.low].short, state.places[ask.high].short
        fresh = ", to see the step again in a fresh trial of the two neighbours" * ask.fresh
        yield f"next: {high} ({ask.high} of {state.line.last}) against {low}{fresh}"


def outcome_text(trial: TrialOutcome, places: Sequence[RowPlace]) -> str:
    """Of one trial."""
    left_out = "; ".join(f"{places[place].short} is left out: {reason}" for place, reason in trial.failed.items())
    size = percent(math.exp(trial.shift)) if trial.shift is not None else "no times"
    return f"{places[trial.high].short} against {places[trial.low].short}: {left_out or size}, {trial.seconds:.0f} s"


def suspects(belief: Belief) -> list[tuple[int, float]]:
    """(position, probability) of the likeliest changes, up to 99 % of what is not "no step"."""
    order = np.argsort(-belief.changes, kind="stable")
    reached = np.cumsum(belief.changes[order])
    many = int(np.searchsorted(reached, SURE * reached[-1])) + 1
    return [(int(n) + 1, float(belief.changes[n])) for n in order[:many]]


def suspects_text(state: SearchState, what: str) -> str:
    """The likeliest first bad ones, the others together, and no step: 100 % in all; and how many suspects there are."""
    every, none = suspects(state.belief), state.belief.none
    shown = {state.places[change].short: probability for change, probability in every[:TOP]}
    shown |= {"others": max(0.0, 1 - none - sum(shown.values())), "no step": none}
    named = ", ".join(f"{name} {chance(share)}" for name, share in shown.items())
    return f"{named}; {plural(len(every), what)} in the 99 % set of {state.line.last}"


def answer(state: SearchState, what: str, onward: str) -> str:
    """The result in a sentence or two.  onward: what to do where there is none."""
    after, places = f"after {plural(state.trials, 'trial')}", state.places
    step = state.answer
    if step is None:
        return f"not decided {after}: {suspects_text(state, what)}; {onward}"
    if not step.high:
        least = f"{100 * state.line.smallest:g} %"
        between = f"{places[0].short} and {places[-1].short}"
        no_step = f"no step of {least} or more between {between} ({chance(step.probability)}, {after})"
        other = "environment or machine" if what == "commit" else "code or machine"
        return f"{no_step}: if the history has one, its cause is not among these {what}s but the {other}"
    place, size = places[step.high], percent(math.exp(step.shift))
    first = f"{place.short} {place.subject}".rstrip() + f": {size}"
    if step.high > step.low + 1:
        between = f"{places[step.low + 1].short} to {place.short}"
        first = f"one of {step.high - step.low}, {between}: {size}; those between cannot be measured"
    ends = [trial.shift or 0.0 for trial in state.outcomes if trial.high - trial.low == state.line.last]
    rest, more = float(np.median(ends)) - step.shift, ""
    if abs(rest) > max(math.log1p(state.line.smallest), abs(step.shift) / 2):
        more = f"; {percent(math.exp(rest))} between the ends is left: search again on either side of it"
    return f"first bad {what}: {first} ({chance(step.probability)}), {after}{more}"


def chance(probability: float) -> str:
    """A probability in percent; never 100 %."""
    return f"{100 * probability:.3g} %" if probability < 0.9995 else "over 99.9 %"


def document(state: SearchState) -> dict[str, object]:
    """What --json prints of the last state of a search."""
    ended, places = state.answer, state.places
    step = ended if ended and ended.high else None
    return {
        "verdict": "NOT DECIDED" if ended is None else "FOUND" if step else "NO STEP",
        "first_bad": places[step.high].name if step else None,
        "probability": round((ended or culprit(state.line, state.belief)).probability, 6),
        "trials": state.trials,
        "steps": [
            {
                "base": places[trial.low].name,
                "head": places[trial.high].name,
                "ratio": round(math.exp(trial.shift), 6) if trial.shift is not None else None,
                "failed": {places[n].name: reason for n, reason in trial.failed.items()},
                "seconds": round(trial.seconds, 3),
            }
            for trial in state.outcomes
        ],
        "last_good": places[step.low].name if step else None,
        "suspected": [place.name for place in places[step.low + 1 : step.high + 1]] if step else [],
        "ratio": round(math.exp(step.shift), 6) if step else None,
        "suspects": [{"name": places[n].name, "probability": round(share, 6)} for n, share in suspects(state.belief)],
        "skipped": [{"name": places[n].name, "why": reason} for n, reason in sorted(state.skipped.items())],
    }
