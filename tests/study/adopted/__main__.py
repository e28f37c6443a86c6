"""The command of this study; see the package."""

from __future__ import annotations

import csv
import dataclasses
import shlex
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from ci.adopt import NothingToCompare, ScriptRequest, SeenScript
from ci.git.repository import LocalCheckout, Repository
from ci.harness import MeasureError, MeasurePlan
from ci.judging import live, policy
from ci.judging.types import Judgement, Verdict
from ci.whole_files import replace

HERE = Path(__file__).parent
LIST, ROWS, SUMMARY = HERE / "scripts.toml", HERE / "outcomes.csv", HERE / "outcomes.md"

ROUNDS, TRIALS = 8, 3
"""The fewest that the policy judges: what is asked here is whether scripts are judged, not how finely."""

FIRST_TIMER_S = 300.0
"""Seconds that a script may take to its first timer, and between two."""

GPU_WORDS = ("active drivers", "cuda", "rocm", "hip", "gpu", "nvidia", "cutlass", "not linked with support for mkl")
"""In a reason: the script needs a device or its toolkit."""


KINDS = {
    "loop of its own": "times by its own loop",
    "its own loop": "times nothing, or by its own loop",
    "other arguments": "needs arguments",
    "several gpus": "several GPUs",
}
"""In a reason, and the outcome that it says."""


@dataclasses.dataclass(frozen=True)
class PublicScript:
    """A script of a public repository.  name: the folder of its clone.  commit: at which it was taken."""

    repository: str
    commit: str
    path: str
    arguments: str = ""

    @property
    def name(self) -> str:
        """The folder of the clone."""
        return self.repository.partition("/")[2]


@dataclasses.dataclass(frozen=True)
class ScriptOutcome:
    """What came of a script.  closures: that it times; timed: on both sides; judged: with a ratio; alarms: false."""

    repository: str
    commit: str
    script: str
    arguments: str
    outcome: str
    timers: str = ""
    closures: int = 0
    timed: int = 0
    judged: int = 0
    alarms: int = 0
    reason: str = ""


@click.command()
@click.option("--clones", type=click.Path(path_type=Path, exists=True), required=True, help="Folder of the clones.")
@click.option("--only", default="", help="Scripts whose repository or path has this in it.")
@click.option("--budget", default=1.5, show_default=True, help="Minutes for the trials of a script.")
@click.option("--python", help="Python with the packages that the scripts import.")
def main(clones: Path, only: str, budget: float, python: str | None) -> None:
    """Run every listed script that has no row yet; write rows and summary."""
    rows = _rows()
    done = {(row.repository, row.script, row.arguments) for row in rows}
    for one in _listed():
        known = (one.repository, one.path, one.arguments) in done
        if known or only not in f"{one.repository}/{one.path}" or not (clones / one.name / one.path).is_file():
            continue
        rows.append(_tried(one, clones / one.name, budget, python))
        _write(rows)
        click.echo(f"{rows[-1].outcome}: {one.repository} {one.path} {rows[-1].reason}"[:300])
    replace(SUMMARY, summary(rows))


def _listed() -> list[PublicScript]:
    found = tomllib.loads(LIST.read_text())
    return [
        PublicScript(entry["repository"], entry["commit"], *(said.split(" ", 1)))
        for entry in found["from"]
        for said in entry["scripts"]
    ]


def _tried(one: PublicScript, clone: Path, budget: float, python: str | None) -> ScriptOutcome:
    """One script with its own commit on both sides."""
    row = ScriptOutcome(one.repository, one.commit, one.path, one.arguments, "")
    commit = Repository(clone).resolve("HEAD")
    sides = [LocalCheckout(role, clone, commit) for role in ("base", "head")]
    words = tuple(shlex.split(one.arguments))
    request = ScriptRequest(Path(one.path), clone / one.path, words, Path(one.path).parent, (), "cpu", budget, TRIALS)
    pythons = dict.fromkeys(("base", "head"), python) if python else {}
    plan = MeasurePlan(trials=TRIALS, rounds=ROUNDS, deadline_s=FIRST_TIMER_S, cache="hot", pythons=pythons)
    with tempfile.TemporaryDirectory() as folder:
        file, quiet = Path(folder) / "t.jsonl", Console(quiet=True)
        try:
            seen = request.seen(sides, plan, file, quiet)
            row = _with_seen(row, seen)
            measuring = live.started_for_each(request.measure)
            found = live.compare(sides, plan, policy.load(), "cpu", file, quiet, measuring)
            return _with_judgement(row, found.judgement, seen)
        except (NothingToCompare, MeasureError) as error:
            return dataclasses.replace(row, outcome=_kind(str(error), row), reason=_short(str(error), clone))


def _with_seen(row: ScriptOutcome, seen: SeenScript) -> ScriptOutcome:
    timers = ", ".join(sorted({one.timer for one in seen.closures}))
    return dataclasses.replace(row, timers=timers, closures=len(seen.closures), timed=len(seen.timed))


def _with_judgement(row: ScriptOutcome, found: Judgement, seen: SeenScript) -> ScriptOutcome:
    judged = [case for case in found.cases if case.ratio is not None]
    alarms = sum(case.verdict in (Verdict.SLOWER, Verdict.FASTER) for case in judged)
    failed = next((one.why for one in seen.closures if one.why), "")
    outcome = "judged" if judged else _kind(failed or found.why, row)
    reason = f"some closures fail: {failed}" if judged and failed else failed
    return dataclasses.replace(row, outcome=outcome, judged=len(judged), alarms=alarms, reason=reason[:300])


def _kind(why: str, row: ScriptOutcome) -> str:
    """The kind of reason for which a script is not judged."""
    low = why.lower()
    if kind := next((kind for said, kind in KINDS.items() if said in low), ""):
        return kind
    if "in time" in low:
        return "too long for this CPU"
    if any(word in low for word in GPU_WORDS):
        return "timers reached, needs a GPU" if row.closures else "needs a GPU"
    if "cannot be imported" in low:
        return "needs a package"
    return "raises" if not row.closures else "timers reached, not judged"


def _short(why: str, clone: Path) -> str:
    return why.replace(f"{clone}/", "").replace("\n", " ")[:300]


def _rows() -> list[ScriptOutcome]:
    if not ROWS.exists():
        return []
    numbers = {field.name for field in dataclasses.fields(ScriptOutcome) if field.type == "int"}
    with ROWS.open(newline="") as file:
        held = [{key: int(one) if key in numbers else one for key, one in row.items()} for row in csv.DictReader(file)]
    return [ScriptOutcome(**row) for row in held]  # type: ignore[arg-type]


def _write(rows: Sequence[ScriptOutcome]) -> None:
    names = [field.name for field in dataclasses.fields(ScriptOutcome)]
    lines = [[getattr(row, name) for name in names] for row in rows]
    partial = ROWS.with_suffix(".part")
    with partial.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([names, *lines])
    partial.replace(ROWS)


def summary(rows: Sequence[ScriptOutcome]) -> str:
    """The table of outcomes in Markdown: how many of each kind, and every script."""
    counts = Counter(row.outcome for row in rows)
    repositories = len({row.repository for row in rows})
    judged, alarms = sum(row.judged for row in rows), sum(row.alarms for row in rows)
    reached = sum(bool(row.closures) for row in rows)
    lines = [
        "# Benchmark scripts of public repositories under `ridgeline adopt`, unchanged",
        "",
        f"{len(rows)} scripts of {repositories} repositories, on a machine without a GPU (`--device cpu`), in an",
        "environment of its own with what they import from PyPI:",
        f"{reached} came to their timers, {counts['judged']} were judged: {judged} cases, each of one commit against",
        f"itself, with {alarms} false alarms.",
        "",
        "| outcome | scripts |",
        "|---|---:|",
        *(f"| {kind} | {count} |" for kind, count in counts.most_common()),
        "",
        "| repository | commit | script | outcome | closures | judged | reason |",
        "|---|---|---|---|---:|---:|---|",
    ]
    return "\n".join([*lines, *map(_line, rows)]) + "\n"


def _line(row: ScriptOutcome) -> str:
    script = f"`{row.script}`" + (f" `{row.arguments}`" if row.arguments else "")
    what = (row.repository, row.commit[:8], script, row.outcome, row.closures, row.judged)
    return f"| {' | '.join(map(str, what))} | {row.reason.replace('|', '/')[:160]} |"


if __name__ == "__main__":
    main()
