"""`ridgeline doctor`: what this machine is, what can be measured on it, what to repair."""

from __future__ import annotations

from pathlib import Path

import click

from ci import doctor as examination
from ci.options import JSON, PASS, RESULTS, USAGE, Given, flag, option, out_console, print_json, verb


@verb("ridgeline doctor --json\n  ridgeline doctor --node --pool mi300x --gpus 8")
@flag("--node", "Only the preflight of a run: is this node fit to measure?")
@option("--pool NAME", "With --node: the pool (default: the one that started us).", default="")
@option("--gpus", "With --node: how many GPUs the job has.", click.IntRange(min=0))
@RESULTS
@JSON
def doctor(given: Given) -> int:
    """What this machine is, what can be measured on it, what is broken and what to do about it.

    Exit code 3 if something is broken.
    """
    if given.node:
        return _shown(examination.diagnose_node(given.pool, given.gpus, given.results), given.as_json)
    if given.pool or given.gpus is not None:
        raise click.UsageError("--pool and --gpus belong to --node; add it")
    return _shown(examination.diagnose(Path.cwd(), given.results), given.as_json)


def _shown(diagnosis: examination.Diagnosis, as_json: bool) -> int:
    if as_json:
        print_json(diagnosis.document())
    else:
        examination.show(diagnosis, out_console())
    return USAGE if diagnosis.worst == "error" else PASS
