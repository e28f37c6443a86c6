"""From a declaration to points: which arms each case of a study has on an architecture.

What a kernel knows of itself (cases, config(), candidates(), names of knobs) comes as JSON from
`python -m benchmarks candidates`, because `ci` imports no kernel.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.points import Batch, Point
from benchmarks.studies.types import StudyError, StudyPart, Tried

Knobs = Mapping[str, Any]
"""The knobs of a launch, or those that a point overrides."""


@dataclasses.dataclass(frozen=True)
class Known:
    """What a kernel says of a case and a backend.

    config: the knobs in use on the architecture asked for; None with `why` where it has none.  names: knobs by name
    with their defaults.
    """

    operator: str
    case: str
    backend: str
    world: int
    config: Knobs | None = None
    candidates: tuple[Knobs, ...] = ()
    names: Knobs = dataclasses.field(default_factory=dict)
    why: str = ""


def batches(part: StudyPart, known: Sequence[Known], arch: str) -> list[Batch]:
    """A batch for each case of a part: its anchor, its plain arms, and its points, each once.

    Raises StudyError where nothing matches, or a declared knob does not exist.
    """
    mine = [one for one in known if one.operator == part.operator and part.has(one.case, one.world)]
    if not mine:
        raise StudyError(f"no case of {part.operator} on {_ranks(part.ranks)} matches {', '.join(part.cases[:4])}")
    by_case: dict[str, dict[str, Known]] = {}
    for one in mine:
        by_case.setdefault(one.case, {})[one.backend] = one
    return [Batch(case, part.anchor, tuple(_points(part, case, found, arch))) for case, found in by_case.items()]


def _points(part: StudyPart, case: str, known: Mapping[str, Known], arch: str) -> Iterator[Point]:
    yield from (Point(case, name) for name in part.arms if name in known)
    seen: dict[str, list[Knobs]] = {}
    for tried in part.tried:
        of = known.get(tried.backend)
        if of is None or of.config is None or not tried.on(arch) or not tried.at(case):
            continue
        done = seen.setdefault(tried.backend, [{**of.names, **of.config}])
        for knobs in overrides(tried, of):
            whole = {**of.names, **of.config, **knobs}
            if whole not in done:
                done.append(whole)
                yield Point(case, tried.backend, knobs)


def overrides(tried: Tried, known: Known) -> Iterator[Knobs]:
    """Knob sets over config(), as far as they differ from it."""
    _check(tried, known)
    config = {**known.names, **(known.config or {})}
    bases = [*(known.candidates if tried.candidates else ()), *tried.points] or [{}]
    for base, change in itertools.product(bases, combinations(tried)):
        asked = {**base, **change}
        yield {name: value for name, value in asked.items() if name not in config or config[name] != value}


def combinations(tried: Tried) -> list[Knobs]:
    """Every combination of the values (or, with `each`, every value of every knob alone); one empty set for none."""
    if tried.each:
        return [{name: value} for name, values in tried.knobs.items() for value in values]
    names = list(tried.knobs)
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*tried.knobs.values())]


def _check(tried: Tried, known: Known) -> None:
    named = dict.fromkeys(name for knobs in (tried.knobs, *tried.points) for name in knobs)
    for name in named:
        if name not in known.names:
            allowed = ", ".join(known.names) or "none"
            said = f"{known.operator}: backend {known.backend} has no knob {name!r}"
            raise StudyError(f"{said}; its knobs are: {allowed}")


def matching(batches: Iterable[Batch], patterns: Sequence[str]) -> list[Batch]:
    """Those whose case fits one of the patterns; all of them without a pattern."""
    tried = Tried(cases=tuple(patterns))
    return [one for one in batches if tried.at(one.case)]


def _ranks(ranks: Sequence[int]) -> str:
    return f"{' or '.join(map(str, ranks))} rank{'' if tuple(ranks) == (1,) else 's'}"
