"""What could be swept: the cases and backends of an operator, their knobs and candidates, as its declaration has them.

`python -m benchmarks candidates` prints it; nothing of torch or Triton is imported here.
"""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.points import Knobs
from ci.harness import OneProgram, options, produce, program, query
from ci.sweeps.measured import SweepError
from ci.trials.cost import Cost
from ci.trials.trial import Json

KINDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a name"}
"""Types of knobs, as their defaults have them, and what is allowed of each."""

FITS: Mapping[str, Callable[[Any], bool]] = {
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
}


@dataclasses.dataclass(frozen=True)
class KnobFact:
    """A knob of a backend: its default, and the type that it is declared with ("int", "int | None", "": any value)."""

    name: str
    default: Any
    kind: str

    def refusal(self, value: Any) -> str:
        """What is wrong with a value, "" for one of the knob's type."""
        kinds = [kind for kind in map(str.strip, self.kind.split("|")) if kind in FITS]
        if not kinds or any(FITS[kind](value) for kind in kinds):
            return ""
        allowed = " or ".join(KINDS[kind] for kind in kinds)
        return f"knob {self.name!r}: {value!r} is not {allowed}, as its default {self.default!r} is"


@dataclasses.dataclass(frozen=True)
class BackendOffer:
    """A backend in a case.  config: its knobs in use here; rule: those without the tuned table; {} where it has none.

    key: of its entry in the tuned table, "" without one.  why_not: why it has no configuration here.
    """

    case: str
    backend: str
    world: int = 1
    tier: str = "pr"
    dtype: str = ""
    dims: Knobs = dataclasses.field(default_factory=dict)
    config: Knobs = dataclasses.field(default_factory=dict)
    rule: Knobs = dataclasses.field(default_factory=dict)
    key: str = ""
    candidates: tuple[Knobs, ...] = ()
    knobs: Mapping[str, KnobFact] = dataclasses.field(default_factory=dict)
    baseline: bool = False
    why_not: str = ""
    cost: Cost = Cost()

    def whole(self, overrides: Knobs) -> Knobs:
        """All knobs of a launch with these overrides."""
        return {**{name: knob.default for name, knob in self.knobs.items()}, **self.config, **overrides}

    def overrides(self, knobs: Knobs) -> Knobs:
        """What a full set of knobs changes of the configuration in use."""
        there, wanted = self.whole({}), {**{name: one.default for name, one in self.knobs.items()}, **knobs}
        return {name: value for name, value in wanted.items() if there.get(name) != value}


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """An operator's offers.  arch, compute_units: what they are made for."""

    operator: str
    arch: str
    compute_units: int | None
    offers: tuple[BackendOffer, ...]

    @property
    def backends(self) -> list[str]:
        """Every backend once."""
        return list(dict.fromkeys(offer.backend for offer in self.offers))

    @property
    def cases(self) -> list[str]:
        """Every case once."""
        return list(dict.fromkeys(offer.case for offer in self.offers))

    def of(self, case: str, backend: str) -> BackendOffer | None:
        """The offer of a backend in a case."""
        return next((one for one in self.offers if one.case == case and one.backend == backend), None)

    def chosen(self, cases: Sequence[str], backends: Sequence[str], tiers: Sequence[str]) -> Catalogue:
        """Those that are asked for: by name or pattern, else by tier.  SweepError names what fits nothing."""
        for pattern in cases:
            if not fnmatch.filter(self.cases, pattern):
                raise SweepError(f"no case of {self.operator} fits {pattern!r}; it has {some(self.cases, pattern)}")
        for name in backends:
            if name not in self.backends:
                raise SweepError(f"{self.operator} has no backend {name!r}; it has {', '.join(self.backends)}")
        kept = [
            one
            for one in self.offers
            if (not backends or one.backend in backends)
            and (any(fnmatch.fnmatchcase(one.case, p) for p in cases) if cases else one.tier in tiers)
        ]
        return dataclasses.replace(self, offers=tuple(kept))


def some(names: Iterable[str], near: str = "", most: int = 8) -> str:
    """A few of many names, those most like `near` first."""
    known = list(names)
    first = difflib.get_close_matches(near, known, most, 0.4) if near else []
    shown = [*first, *(name for name in known if name not in first)][:most]
    return ", ".join(shown) + (f" and {len(known) - most} more" if len(known) > most else "")


def ask(
    operator: str, tree: Path, cases: Sequence[str] = (), arch: str | None = None, compute_units: int | None = None
) -> Catalogue:
    """What the declaration of a tree offers; SweepError or MeasureError if it cannot say.

    arch, compute_units: those of another device than this machine's.
    """
    wanted = options(kernel=operator, case=cases, tree=tree, arch=arch, compute_units=compute_units)
    return parsed(query("candidates", *wanted), operator)


class Catalogues:
    """What operators of a tree offer: one question for all of them, each asked once."""

    def __init__(self, tree: Path, operators: Iterable[str], program: OneProgram, console: Console) -> None:
        self._tree, self._operators = tree, list(dict.fromkeys(operators))
        self.program, self._console = program, console
        self._known: dict[tuple[str | None, int | None], dict[str, Catalogue]] = {}

    def of(self, operator: str, arch: str | None = None, compute_units: int | None = None) -> Catalogue:
        """As `ask`, of one of the operators."""
        if (arch, compute_units) not in self._known:
            found = self._asked(arch, compute_units)
            made = {name: parsed(found, name) for name in self._operators}
            self._known[arch, compute_units] = self._known[made[operator].arch, made[operator].compute_units] = made
        return self._known[arch, compute_units][operator]

    def _asked(self, arch: str | None, compute_units: int | None) -> Json:
        with tempfile.TemporaryDirectory(prefix="ridgeline-candidates-") as folder:
            out = Path(folder) / "candidates.json"
            argv = program("benchmarks", "candidates", *options(kernel=self._operators, tree=self._tree, out=out))
            argv += options(arch=arch, compute_units=compute_units)
            produce(argv, out, self._console, "what can be tried", self.program)
            return dict(json.loads(out.read_text()))


def parsed(found: Json, operator: str) -> Catalogue:
    """The catalogue of an operator in what `python -m benchmarks candidates` printed."""
    offers = tuple(_offer(one) for one in found["entries"] if one.get("kernel", operator) == operator)
    return Catalogue(operator, found.get("arch") or "cpu", found.get("compute_units"), offers)


def _offer(one: Json) -> BackendOffer:
    plain = ("case", "backend", "world", "tier", "dtype", "dims", "config", "rule", "baseline")
    return BackendOffer(
        **{name: one[name] for name in plain if one.get(name) is not None},
        key=(one.get("tuned") or {}).get("key") or "",
        candidates=tuple(one.get("candidates") or ()),
        knobs={name: KnobFact(name, told["default"], told["type"]) for name, told in one["knobs"].items()},
        why_not=one.get("why") or "",
        cost=Cost(**(one.get("cost") or {})),
    )
