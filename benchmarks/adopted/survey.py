"""What the survey of a script came to, on both sides, as values that a file can hold.  Standard library only."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

VERSION = 2
"""Of the file in which a survey is kept; one of another version is made again."""


@dataclasses.dataclass(frozen=True)
class SeenClosure:
    """A closure that a side timed.  at_s: when in the script; took_s: to look at it; expected_s: of one call.

    inputs, outputs: tensors as "float32[64, 64]".  changed: inputs that each call changes further.  why: the reason if
    it failed, with its status.  repeats: equal calls gave equal outputs.  call: what it does, in Python, "" if untold,
    with the modules that it needs.
    """

    backend: str
    case: str
    timer: str = ""
    at_s: float = 0.0
    took_s: float = 0.0
    first_call_s: float = 0.0
    expected_s: float = 0.0
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    repeats: bool = True
    status: str = "ok"
    why: str = ""
    detail: str = ""
    call: str = ""
    modules: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its name in a trial file: backend and case."""
        return f"{self.backend}/{self.case}"

    @property
    def definition(self) -> str:
        """Digest of what is computed: the outputs' types and shapes, or the inputs' where there are none to see."""
        seen = [self.timer, *(self.outputs or self.inputs)]
        return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> SeenClosure:
        """From the event that the script's process sends."""
        facts, error = event.get("facts") or {}, event.get("error") or {}
        lists = {name: tuple(facts.get(name, ())) for name in ("inputs", "outputs", "changed", "modules")}
        numbers = {name: float(facts.get(name, 0.0)) for name in ("first_call_s", "expected_s")}
        times = {name: float(event.get(name, 0.0)) for name in ("at_s", "took_s")}
        failed = {"status": error["status"], "why": error["why"], "detail": error["detail"]} if error else {}
        named = {name: str(event[name]) for name in ("backend", "case", "timer")}
        told = {"call": str(facts.get("call", "")), "repeats": bool(facts.get("repeats", True))}
        return cls(**named, **times, **numbers, **lists, **failed, **told)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class ScriptEnd:
    """How a script ended.  code: its exit code.  kind: "" (ran through), exit, import, raised, several, died, late.

    inside, elsewhere: packages of the repository by where they were imported from.  programs: Python that it started.
    printed: the last lines of its output.
    """

    code: int = 0
    kind: str = ""
    why: str = ""
    detail: str = ""
    took_s: float = 0.0
    inside: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = dataclasses.field(default_factory=dict)
    programs: tuple[str, ...] = ()
    printed: str = ""


@dataclasses.dataclass(frozen=True)
class SideSurvey:
    """One side: its closures in the order of the script, and how the script ended."""

    closures: tuple[SeenClosure, ...]
    end: ScriptEnd

    @functools.cached_property
    def by_key(self) -> dict[str, SeenClosure]:
        """The closures by name."""
        return {one.key: one for one in self.closures}


@dataclasses.dataclass(frozen=True)
class Survey:
    """Both sides.  asked: digest of script, arguments, commits and device: what else it must be to be used again."""

    asked: str
    sides: Mapping[str, SideSurvey]

    @functools.cached_property
    def paired(self) -> tuple[str, ...]:
        """Names of the closures that both sides time, in an order that both keep (longest common subsequence).

        A closure that fails on either side is among them: which side fails is what is to be told.
        """
        base, head = ([one.key for one in self.sides[role].closures] for role in ("base", "head"))
        blocks = SequenceMatcher(None, base, head, autojunk=False).get_matching_blocks()
        return tuple(key for block in blocks for key in base[block.a : block.a + block.size])

    def definition(self, role: str, case: str) -> str:
        """Digest of what a side computes in a case, over the backends that both sides time in it."""
        own, shared = self.sides[role].by_key, [key for key in self.paired if key.partition("/")[2] == case]
        return hashlib.sha256(json.dumps([[key, own[key].definition] for key in shared]).encode()).hexdigest()[:16]

    def unpaired(self) -> dict[str, str]:
        """By name, why a closure is on no side's list of pairs."""
        known, found = set(self.paired), {}
        for role, side in self.sides.items():
            other = next(one for own, one in self.sides.items() if own != role).by_key
            for one in side.closures:
                if one.key not in known:
                    both = one.key in other
                    found[one.key] = "the two sides time it in another order" if both else f"only {role} times it"
        return found


def kept(path: Path, asked: str) -> Survey | None:
    """The survey that a file holds, if it is of the same script, arguments, commits and device."""
    try:
        held = json.loads(path.read_bytes())
        if held["version"] != VERSION or held["asked"] != asked:
            return None
        return Survey(asked, {role: _side(one) for role, one in held["sides"].items()})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(path: Path, survey: Survey) -> None:
    """Write it, whole or not at all."""
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(json.dumps({"version": VERSION, **dataclasses.asdict(survey)}))
    partial.replace(path)


def _side(held: Mapping[str, Any]) -> SideSurvey:
    closures = tuple(SeenClosure(**{name: _frozen(one) for name, one in each.items()}) for each in held["closures"])
    return SideSurvey(closures, ScriptEnd(**{name: _frozen(one) for name, one in held["end"].items()}))


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
