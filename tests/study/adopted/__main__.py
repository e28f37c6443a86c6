"""The command of this study; see the package."""

from __future__ import annotations

import shlex
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pandas as pd
from rich.console import Console

from ci.adopt import NothingToCompare, ScriptRequest, SeenScript
from ci.git.repository import LocalCheckout, Repository
from ci.harness import MeasureError, MeasurePlan
from ci.judging import live, policy
from ci.judging.types import Judgement, Verdict
from ci.whole_files import replace

HERE = Path(__file__).parent
LIST, ROWS, SUMMARY = HERE / "scripts.toml", HERE / "outcomes.csv", HERE / "outcomes.md"

ON_GPU = HERE / "gpu.md"
"""What came of scripts on a GPU, by hand: the end of the summary."""

ROUNDS, TRIALS = 8, 3
"""The fewest that the policy judges: what is asked here is whether scripts are judged, not how finely."""

FIRST_TIMER_S = 300.0
"""Seconds that a script may take to its first timer, and between two."""

GPU_WORDS = ("active drivers", "cuda", "rocm", "hip", "gpu", "nvidia", "cutlass", "not linked with support for mkl")
"""In a reason: the script needs a device or its toolkit."""


KINDS = {
    "reads a clock at": "times by a loop of its own",
    "or in a way that is not known": "times nothing that is known",
    "other arguments": "needs arguments",
    "several gpus": "several GPUs",
}
"""In a reason, and the outcome that it says."""


Row = dict[str, Any]
"""What came of a script: the columns of outcomes.csv."""

NOTHING: Row = {"outcome": "", "timers": "", "closures": 0, "timed": 0, "judged": 0, "alarms": 0, "reason": ""}
"""Closures that it times; timed on both sides; judged with a ratio; false alarms."""


@click.command()
@click.option("--clones", type=click.Path(path_type=Path, exists=True), required=True, help="Folder of the clones.")
@click.option("--only", default="", help="Scripts whose repository or path has this in it.")
@click.option("--budget", default=1.5, show_default=True, help="Minutes for the trials of a script.")
@click.option("--python", help="Python with the packages that the scripts import.")
def main(clones: Path, only: str, budget: float, python: str | None) -> None:
    """Run every listed script that has no row yet; write rows and summary."""
    rows = _rows()
    for one in _listed():
        where, clone = (one["repository"], one["script"]), clones / one["repository"].partition("/")[2]
        done = any(one.items() <= row.items() for row in rows)
        if done or only not in "/".join(where) or not (clone / one["script"]).is_file():
            continue
        rows.append({**one, **NOTHING, **_tried(one, clone, budget, python)})
        replace(ROWS, pd.DataFrame(rows).to_csv(index=False))
        click.echo(f"{rows[-1]['outcome']}: {' '.join(where)} {rows[-1]['reason']}"[:300])
    replace(SUMMARY, f"{summary(rows)}\n{ON_GPU.read_text()}")


def _rows() -> list[Row]:
    found = pd.read_csv(ROWS, keep_default_na=False, dtype={"commit": str}) if ROWS.exists() else pd.DataFrame()
    return [{str(name): value for name, value in row.items()} for row in found.to_dict("records")]


def _listed() -> list[Row]:
    """Repository, commit at which it was taken, script and arguments."""
    return [
        {"repository": entry["repository"], "commit": entry["commit"], "script": script, "arguments": arguments}
        for entry in tomllib.loads(LIST.read_text())["from"]
        for script, _, arguments in (said.partition(" ") for said in entry["scripts"])
    ]


def _tried(one: Row, clone: Path, budget: float, python: str | None) -> Row:
    """One script with its own commit on both sides."""
    commit, script = Repository(clone).resolve("HEAD"), Path(one["script"])
    sides = [LocalCheckout(role, clone, commit) for role in ("base", "head")]
    words = tuple(shlex.split(one["arguments"]))
    request = ScriptRequest(script, clone / script, words, script.parent, (), "cpu", budget, TRIALS, all_cases=True)
    pythons = dict.fromkeys(("base", "head"), python) if python else {}
    plan = MeasurePlan(trials=TRIALS, rounds=ROUNDS, deadline_s=FIRST_TIMER_S, cache="hot", pythons=pythons)
    row: Row = {"closures": 0}
    with tempfile.TemporaryDirectory() as folder:
        file, quiet = Path(folder) / "t.jsonl", Console(quiet=True)
        try:
            seen = request.seen(sides, plan, file, quiet)
            timers = ", ".join(sorted({one.timer for one in seen.closures}))
            row = {"timers": timers, "closures": len(seen.closures), "timed": len(seen.timed)}
            found = live.compare(sides, plan, policy.load(), "cpu", file, quiet, request.measure)
            return {**row, **_judged(found.judgement, seen)}
        except (NothingToCompare, MeasureError) as error:
            why = str(error)
            short = why.replace(f"{clone}/", "").replace("\n", " ")[:300]
            return {**row, "outcome": _kind(why, row["closures"]), "reason": short}


def _judged(found: Judgement, seen: SeenScript) -> Row:
    judged = [case for case in found.cases if case.ratio is not None]
    alarms = sum(case.verdict in (Verdict.SLOWER, Verdict.FASTER) for case in judged)
    failed = next((one.why for one in seen.closures if one.why), "")
    outcome = "judged" if judged else _kind(failed or found.why, len(seen.closures))
    reason = f"some closures fail: {failed}" if judged and failed else failed
    return {"outcome": outcome, "judged": len(judged), "alarms": alarms, "reason": reason[:300]}


def _kind(why: str, closures: int) -> str:
    """The kind of reason for which a script is not judged."""
    low = why.lower()
    if kind := next((kind for said, kind in KINDS.items() if said in low), ""):
        return kind
    if "in time" in low:
        return "too long for this CPU"
    if any(word in low for word in GPU_WORDS):
        return "timers reached, needs a GPU" if closures else "needs a GPU"
    if "cannot be imported" in low:
        return "needs a package"
    return "raises" if not closures else "timers reached, not judged"


def summary(rows: Sequence[Row]) -> str:
    """The table of outcomes in Markdown: how many of each kind, and every script."""
    counts, frame = Counter(row["outcome"] for row in rows), pd.DataFrame(rows)
    reached, judged, alarms = (frame["closures"] > 0).sum(), frame["judged"].sum(), frame["alarms"].sum()
    lines = [
        "# Benchmark scripts of public repositories under `ridgeline adopt`, unchanged",
        "",
        f"{len(rows)} scripts of {frame['repository'].nunique()} repositories, on a machine without a GPU "
        "(`--device cpu`), in an",
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


def _line(row: Row) -> str:
    script = f"`{row['script']}`" + (f" `{row['arguments']}`" if row["arguments"] else "")
    what = (row["repository"], row["commit"][:8], script, row["outcome"], row["closures"], row["judged"])
    return f"| {' | '.join(map(str, what))} | {row['reason'].replace('|', '/')[:160]} |"


if __name__ == "__main__":
    main()
