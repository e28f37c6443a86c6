"""A search for people (after every trial: what it came to, who is suspected, what is next) and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console
from rich.text import Text

from ci.bisect.search import SURE, Ask, Culprit, Labels, RowPlace, SearchState, TrialOutcome, culprit, same_code
from ci.report.words import percent, plural

TOP = 5
"""Suspects that are shown; --json has all of the 99 % set."""

LISTED = 50
"""Suspects in --json, at most."""


def progress(state: SearchState, places: Sequence[RowPlace], what: str, console: Console) -> None:
    """The last trial, the suspects, and what is next."""
    if state.outcomes:
        console.print(Text(f"trial {state.trials}: {_outcome_text(state.outcomes[-1], places)}"), soft_wrap=True)
    if state.belief is not None and state.answer is None:
        scatter = f"trials scatter by {100 * state.belief.noise:.2g} %"
        console.print(Text(f"{suspects_text(state, places)}; {set_size(state, what)}; {scatter}"), soft_wrap=True)
    if isinstance(state.then, Ask):
        console.print(Text(f"next: {_ask_text(state.then, places)}", "dim"), soft_wrap=True)


def suspects_text(state: SearchState, places: Sequence[RowPlace]) -> str:
    """The likeliest first bad ones, what the others have together, and no step: 100 % in all."""
    none = state.belief.none if state.belief else 0.0
    shown = suspects(state)[:TOP]
    others = state.line.last - len(shown)
    rest = max(0.0, 1 - none - sum(probability for _, probability in shown))
    named = [f"{places[change].short} {chance(probability)}" for change, probability in shown]
    return ", ".join([*named, *[f"{others} others {chance(rest)}"] * bool(others), f"no step {chance(none)}"])


def suspects(state: SearchState) -> list[tuple[int, float]]:
    """(position, probability) of the likeliest changes, up to 99 % of what is not "no step"."""
    if state.belief is None:
        return []
    chances = state.belief.changes
    order = np.argsort(-chances, kind="stable")
    reached = np.cumsum(chances[order])
    many = int(np.searchsorted(reached, SURE * reached[-1])) + 1
    return [(int(n) + 1, float(chances[n])) for n in order[:many]]


def places_lines(places: Sequence[RowPlace], known: Labels) -> Iterator[str]:
    """The row: every place, and whether its code may differ from that of the one before, as far as that is known."""
    for place, equal in zip(places, [False, *same_code(known, {})], strict=True):
        yield f"{place.short}  {'equal code' if equal else 'may differ'}  {place.subject}".rstrip()


def set_size(state: SearchState, what: str) -> str:
    """How many suspects are left."""
    return f"{plural(len(suspects(state)), what)} in the 99 % set of {state.line.last}"


def answer(state: SearchState, places: Sequence[RowPlace], what: str, onward: str) -> str:
    """The result in a sentence or two.  onward: what to do where there is none."""
    after = f"after {plural(state.trials, 'trial')}"
    result = state.answer
    if result is None:
        suspected = (
            f"{set_size(state, what)} ({suspects_text(state, places)})" if state.belief else set_size(state, what)
        )
        return f"not decided {after}: {suspected}; {onward}"
    step = result.culprit
    if step is None:
        least = f"{100 * state.line.smallest:g} %"
        between = f"{places[0].short} and {places[-1].short}"
        no_step = f"no step of {least} or more between {between} ({chance(result.probability)}, {after})"
        other = "environment or machine" if what == "commit" else "code or machine"
        return f"{no_step}: if the history has one, its cause is not among these {what}s but the {other}"
    both_ends = (0, len(places) - 1)
    ends = [trial.shift for trial in state.outcomes if trial.shift is not None and (trial.low, trial.high) == both_ends]
    rest = float(np.median(ends)) - step.shift if ends else 0.0
    large = abs(rest) > max(math.log1p(state.line.smallest), abs(step.shift) / 2)
    more = f"; {percent(math.exp(rest))} between the ends is left: search again on either side of it" if large else ""
    return f"{_culprit_text(step, places, what)} ({chance(step.probability)}), {after}{more}"


def _culprit_text(step: Culprit, places: Sequence[RowPlace], what: str) -> str:
    size = percent(math.exp(step.shift))
    place = places[step.high]
    if step.high == step.low + 1:
        return f"first bad {what}: {place.short} {place.subject}: {size}".replace(" : ", ": ")
    between = f"{places[step.low + 1].short} to {place.short}"
    return f"first bad {what}: one of {step.high - step.low}, {between}: {size}; those between cannot be measured"


def chance(probability: float) -> str:
    """A probability in percent; never 100 %."""
    return f"{100 * probability:.3g} %" if probability < 0.9995 else "over 99.9 %"


def _outcome_text(trial: TrialOutcome, places: Sequence[RowPlace]) -> str:
    pair = f"{places[trial.high].short} against {places[trial.low].short}"
    if trial.failed:
        left_out = "; ".join(f"{places[place].short} is left out: {reason}" for place, reason in trial.failed.items())
        return f"{pair}: {left_out}"
    size = percent(math.exp(trial.shift)) if trial.shift is not None else "no times"
    return f"{pair}: {size}" + (f", {trial.seconds:.0f} s" if trial.seconds else "")


def _ask_text(ask: Ask, places: Sequence[RowPlace]) -> str:
    pair = f"{places[ask.high].short} ({ask.high} of {len(places) - 1}) against {places[ask.low].short}"
    if ask.fresh:
        return f"{pair}, to see the step again in a fresh trial of the two neighbours"
    return pair


# ---- JSON ---------------------------------------------------------------------------------------------------------


def document(states: Sequence[SearchState], places: Sequence[RowPlace], what: str) -> dict[str, object]:
    """What --json prints.  states: after each trial, the last one at the end."""
    state = states[-1]
    result = state.answer
    step = result.culprit if result else None
    belief = state.belief
    best = culprit(state.line, belief).probability if belief is not None else 0.0
    return {
        "verdict": "NOT DECIDED" if result is None else "FOUND" if step else "NO STEP",
        "first_bad": places[step.high].name if step else None,
        "probability": round(result.probability if result else best, 6),
        "trials": state.trials,
        "steps": [_step(each, places) for each in states if each.outcomes],
        "last_good": places[step.low].name if step else None,
        "suspected": [place.name for place in places[step.low + 1 : step.high + 1]] if step else [],
        "ratio": round(math.exp(step.shift), 6) if step else None,
        "axis": what,
        "good": places[0].name,
        "bad": places[-1].name,
        "changes": state.line.last,
        "classes": state.classes,
        "no_step": round(belief.none, 6) if belief is not None else None,
        "suspects": [{"name": places[n].name, "probability": round(p, 6)} for n, p in suspects(state)[:LISTED]],
        "skipped": [{"name": places[n].name, "why": reason} for n, reason in sorted(state.skipped.items())],
    }


def _step(state: SearchState, places: Sequence[RowPlace]) -> dict[str, object]:
    """One trial of the search, and what was believed after it."""
    trial, belief = state.outcomes[-1], state.belief
    leading = int(np.argmax(belief.changes)) + 1 if belief is not None else None
    return {
        "base": places[trial.low].name,
        "head": places[trial.high].name,
        "ratio": round(math.exp(trial.shift), 6) if trial.shift is not None else None,
        "failed": {places[n].name: reason for n, reason in trial.failed.items()},
        "seconds": round(trial.seconds, 3),
        "first_bad": places[leading].name if leading else None,
        "probability": round(float(belief.changes[leading - 1]), 6) if belief is not None and leading else None,
        "no_step": round(belief.none, 6) if belief is not None else None,
    }
