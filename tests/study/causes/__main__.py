"""What `ci.why` says of fifty planted regressions of ten kinds, five of each.

    python -m tests.study.causes --data tests/recordings/h200 --out tests/study/causes

writes causes.md (a row for each) and causes.json.  Effects are drawn between 1 and 8 %; a cause is right if it is
proven, is called as the planted thing is (a knob by its name, a file with the edited part and no other, the compiler),
and, where the machine code must differ in a certain way, that is said.  The seed is fixed.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import io
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from ci.harness import HARNESS, MeasurePlan
from ci.isa import compiled
from ci.isa.compiled import CompiledTree
from ci.judging import policy
from ci.judging.types import Verdict
from ci.records.ledger import Explanation, TriedCause
from ci.trials.trial import Trial
from ci.why.experiments import Question
from ci.why.explain import Code, explain_pair
from ci.why.suspects import CodeDifference, differences
from tests.study.causes.planting import Plant, plants, trees
from tests.study.causes.played import PYTHON, Knobs, PlayedMeasuring, RecordedNoise, chosen_knobs

LEAST, MOST = 0.01, 0.08
"""Planted effects: three times the smallest that counts on a GPU, and what nobody overlooks."""

VERSIONS = HARNESS / "tests" / "recordings" / "isa"


@dataclasses.dataclass(frozen=True)
class Said:
    """What was said of a plant, and whether that is right."""

    kind: str
    operator: str
    case: str
    arch: str
    planted: str
    effect: float
    verdict: str
    said: str
    code: str
    named: bool
    code_named: bool
    experiments: int
    trials: int

    @property
    def right(self) -> bool:
        """Whether the cause is the planted thing, with its trace in the machine code."""
        return self.named and self.code_named


def study(data: Path, chosen: Sequence[Plant], seed: int, cache: Path, compile_code: bool = True) -> list[Said]:
    """Plant, judge, explain."""
    noise, effects = RecordedNoise.of(data, seed), np.random.default_rng(seed)
    return [
        one_plant(plant, float(np.exp(effects.uniform(np.log(LEAST), np.log(MOST)))), noise, cache, compile_code)
        for plant in track(chosen, "plants", console=Console(stderr=True))
    ]


def one_plant(plant: Plant, effect: float, noise: RecordedNoise, cache: Path, compile_code: bool = True) -> Said:
    """The whole way of a plant: a comparison that finds it, and what explains it."""
    with tempfile.TemporaryDirectory(prefix="ridgeline-causes-") as folder:
        sides, rules = trees(plant, Path(folder)), policy.load()
        measuring = PlayedMeasuring(plant, effect, noise.next_case(), _knobs(plant, Path(folder)))
        plan = MeasurePlan(kernels=(plant.operator,), pythons={"base": PYTHON} if plant.triton else {})
        code = _code(plant, Path(folder), cache) if compile_code else _no_code
        asked = (sides, plan, rules, "gpu", Path(folder) / "why", Console(file=io.StringIO()))
        found, made = explain_pair(*asked, comparing=measuring.session, measuring=measuring, code=code)
    return said_of(plant, effect, found.judgement.verdict, made[0] if made else None, compile_code)


def _knobs(plant: Plant, folder: Path) -> dict[str, Knobs]:
    """What both sides launch; equal, and nothing that matters, where no knob is planted."""
    if not plant.knob:
        return {"base": {"num_warps": 4}, "head": {"num_warps": 4}}
    return {role: chosen_knobs(plant, folder / role) for role in ("base", "head")}


def _code(plant: Plant, folder: Path, cache: Path) -> Code:
    if plant.triton:
        base, head = (_recorded(version, plant.operator) for version in plant.triton)
        return lambda question, trial: tuple(differences(base, head, cache))
    return CodeDifference(folder / "base", folder / "head", cache).sentences


def _recorded(version: str, operator: str) -> CompiledTree:
    """What a version of Triton made of an operator."""
    tree = compiled.read(VERSIONS / f"triton-{version}.json")
    return dataclasses.replace(tree, entries=tuple(entry for entry in tree.entries if entry.kernel == operator))


def _no_code(question: Question, trial: Trial) -> tuple[str, ...]:
    return ()


def said_of(plant: Plant, effect: float, verdict: Verdict, made: Explanation | None, with_code: bool = True) -> Said:
    """An explanation, held against what was planted."""
    code = made.code if made else ()
    telling = [sentence for sentence in code if any(word in sentence for word in plant.words)]
    return Said(
        plant.kind,
        plant.operator,
        plant.case,
        plant.arch,
        plant.knob or plant.file or "triton " + " → ".join(plant.triton),
        round(effect, 4),
        str(verdict),
        made.sentence if made else f"nothing to explain: {verdict}",
        "; ".join((telling or code)[:2]),
        made is not None and made.state == "proven" and _named(plant, made),
        bool(telling) or not plant.words or not with_code,
        made.experiments if made else 0,
        made.trials if made else 0,
    )


def _named(plant: Plant, made: Explanation) -> bool:
    """Whether the causes are the planted thing and nothing else."""
    causes = [one for one in made.tried if one.answer.startswith("explains")]
    if plant.knob or plant.triton:
        return [one.name for one in causes] == [plant.knob or "compiler"]
    files, parts = ([one for one in causes if bool(one.part_of) is part] for part in (False, True))
    return [one.name for one in files] == [plant.file] and bool(parts) and not any(map(_innocent, parts))


def _innocent(part: TriedCause) -> bool:
    return "spare" in part.name + part.change


# ---- the table -----------------------------------------------------------------------------------------------------


def page(rows: Sequence[Said]) -> str:
    """A row for each plant, and how many of each kind are right."""
    lines = ["# What made it slower: fifty planted regressions", "", inspect.cleandoc(main.__doc__ or ""), ""]
    right, every = Counter(one.kind for one in rows if one.right), Counter(one.kind for one in rows)
    lines += [f"**{sum(right.values())} of {len(rows)} causes are right.**", "", "| kind | right |", "|---|--:|"]
    lines += [f"| {kind} | {right[kind]} of {count} |" for kind, count in every.items()]
    middle = [sorted(getattr(one, name) for one in rows)[len(rows) // 2] for name in ("experiments", "trials")]
    lines += ["", f"The median cause took {middle[0]} experiments and {middle[1]} trials.", ""]
    lines += ["| kind | operator | arch | planted | effect | said | machine code | right |"]
    lines += ["|---|---|---|---|--:|---|---|---|", *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(one: Said) -> str:
    said, code = (text.replace("|", "\\|") for text in (one.said, one.code[:200]))
    cells = (one.kind, one.operator, one.arch, one.planted, f"{100 * one.effect:.1f} %", said, code)
    return f"| {' | '.join(cells)} | {'yes' if one.right else 'no'} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Made by `python -m tests.study.causes`: each regression is planted beside edits that change nothing, found by the
    live comparison, explained by `ci.why`, and compiled for its architecture.  Times are drawn from recorded H200
    trials, slower by the planted effect where what is planted is in the tree that is measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.study.causes", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HARNESS / "tests/recordings/h200", help="H200 recordings")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of causes.md and causes.json")
    parser.add_argument("--cache", type=Path, default=Path(".ridgeline/isa"), help="folder of compiled results")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--kind", action="append", default=[], help="only plants of this kind (repeatable)")
    asked = parser.parse_args(arguments)
    chosen = [plant for plant in plants() if not asked.kind or plant.kind in asked.kind]
    if not chosen:
        known = ", ".join(dict.fromkeys(plant.kind for plant in plants()))
        parser.error(f"no plant is of the kind {', '.join(asked.kind)}; known: {known}")
    rows = study(asked.data, chosen, asked.seed, asked.cache)
    (asked.out / "causes.md").write_text(page(rows), encoding="utf-8")
    values = [{**dataclasses.asdict(one), "right": one.right} for one in rows]
    (asked.out / "causes.json").write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{sum(one.right for one in rows)} of {len(rows)} causes are right")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
