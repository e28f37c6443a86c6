"""`ridgeline doctor`: what this machine is, what can be measured on it, what to repair."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ci import doctor as examination
from ci.options import JSON, PASS, RESULTS, USAGE, example, out_console


@click.command(epilog=example("ridgeline doctor --json"))
@RESULTS
@JSON
def doctor(as_json: bool, results: Path) -> int:
    """What this machine is, what can be measured on it, what is broken and what to do about it."""
    diagnosis = examination.diagnose(Path.cwd(), results)
    if as_json:
        click.echo(json.dumps(diagnosis.document(), indent=1))
    else:
        examination.show(diagnosis, out_console())
    return USAGE if diagnosis.worst == "error" else PASS
