"""`ridgeline doctor`: what this machine is, what can be measured on it, what to repair."""

from __future__ import annotations

from pathlib import Path

import click

from ci import doctor as examination
from ci.options import DRY_RUN, JSON, PASS, RESULTS, USAGE, Given, flag, option, out_console, print_json, verb
from ci.pools import node


@verb("ridgeline doctor --json\n  ridgeline doctor --node --pool mi300x --gpus 8")
@flag("--node", "Only the preflight of a run: is this node fit to measure?")
@option("--pool NAME", "With --node: the pool (default: the one that started us).", default="")
@option("--gpus", "With --node: how many GPUs the job has.", click.IntRange(min=0))
@flag("--drain", "With --node: keep our jobs away from a node that fails.")
@RESULTS
@JSON
@DRY_RUN
def doctor(given: Given) -> int:
    """What this machine is, what can be measured on it, what is broken and what to do about it.

    Exit code 3 if something is broken.
    """
    if given.node:
        report = node.examine_node(node.node_check(given.pool, given.gpus), given.results)
        code = _shown(report.diagnosis, given.as_json)
        if given.drain and (reason := node.drain(report, given.dry_run)):
            held_to, done = report.held_to, "would be" if given.dry_run else "is"
            click.echo(f"{held_to.name} {done} drained from our jobs ({reason}), in {held_to.folder}", err=True)
        return code
    if given.pool or given.gpus is not None or given.drain:
        raise click.UsageError("--pool, --gpus and --drain belong to --node; add it")
    return _shown(examination.diagnose(Path.cwd(), given.results), given.as_json)


def _shown(diagnosis: examination.Diagnosis, as_json: bool) -> int:
    if as_json:
        print_json(diagnosis.document())
    else:
        examination.show(diagnosis, out_console())
    return USAGE if diagnosis.worst == "error" else PASS
