"""Where, when and by how much an entry won: the table `confirmed` in it (kernels._shared.tuning.PROVENANCE)."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping

from benchmarks.points import Knobs
from ci.sweeps.catalogue import Table, Value
from ci.sweeps.times import Versus
from ci.sweeps.tuned.choose import EntryDecision, RunnerUp

NAME = "confirmed"
"""Of the table within an entry."""

BEHIND = "time"
"""In a runner-up, beside the knobs that differ from the entry's: its time / the winner's."""

VERSIONS = ("triton", "torch", "driver")
"""Packages that are named, and the driver."""

CODE_DIGITS = 16


@dataclasses.dataclass(frozen=True)
class Confirmed:
    """What confirmed an entry.

    machine: as records name it.  cases: those that it was measured in.  against_rule: its time / the rule's, geometric
    mean over the cases.  runners_up: what came next.  code: digest of the code objects of winner, rule and runners-up,
    "" if they were not compiled.
    """

    date: datetime.date
    device: str
    machine: str
    versions: Mapping[str, str]
    cases: tuple[str, ...]
    trials: int
    against_rule: Versus
    runners_up: tuple[RunnerUp, ...] = ()
    code: str = ""


def of_decision(
    made: EntryDecision, date: datetime.date, device: str, machine: str, versions: Mapping[str, str], code: str
) -> Confirmed:
    """The provenance of a decision that has knobs."""
    assert made.against_rule is not None
    cases = tuple(case.case for case in made.cases)
    known = {name: versions[name] for name in VERSIONS if versions.get(name)}
    return Confirmed(date, device, machine, known, cases, made.trials, made.against_rule, made.runners_up, code)


def as_table(confirmed: Confirmed, launched: Knobs) -> Table:
    """As values of TOML, in the order of the file.  launched: all knobs of the winner's launch."""
    rule = confirmed.against_rule
    told: dict[str, object] = {"date": confirmed.date, "device": confirmed.device, "machine": confirmed.machine}
    told |= dict(confirmed.versions)
    told |= {"cases": list(confirmed.cases), "trials": confirmed.trials}
    told |= {"ratio": round(rule.ratio, 4), "low": round(rule.low, 4), "high": round(rule.high, 4)}
    told["runners_up"] = [_runner_up(one, launched) for one in confirmed.runners_up]
    return {name: value for name, value in (told | {"code": confirmed.code}).items() if value or name == "trials"}


def _runner_up(one: RunnerUp, launched: Knobs) -> dict[str, Value]:
    other = {name: value for name, value in one.knobs.items() if value != launched.get(name)}
    return {BEHIND: round(one.behind, 4), **other}


def parse(table: Table, launched: Knobs, where: str) -> Confirmed:
    """From values of TOML.  ValueError names what is missing or of a wrong type, and how to write the entry anew."""
    try:
        rule = Versus(*(float(table[name]) for name in ("ratio", "low", "high")))
        date = table["date"]
        if not isinstance(date, datetime.date):
            raise TypeError(f"date = {date!r}")
        runners = tuple(_parsed_runner_up(one, launched) for one in table.get("runners_up", []))
        texts = {name: str(table[name]) for name in ("device", "machine")}
        return Confirmed(
            date=date,
            versions={name: str(table[name]) for name in VERSIONS if name in table},
            cases=tuple(map(str, table["cases"])),
            trials=int(table["trials"]),
            against_rule=rule,
            runners_up=runners,
            code=str(table.get("code", "")),
            **texts,
        )
    except (KeyError, TypeError, ValueError) as error:
        said = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"{where}: {said}; remove this table, and `ridgeline tune all --verify` writes it again"
        ) from None


def _parsed_runner_up(table: Table, launched: Knobs) -> RunnerUp:
    knobs = {name: value for name, value in table.items() if name != BEHIND}
    return RunnerUp({**launched, **knobs}, float(table[BEHIND]))
