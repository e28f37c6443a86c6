"""`ridgeline doctor`: what this machine is, what can be measured on it, what to repair."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ci import doctor as examination
from ci.commands.common import github_settings
from ci.options import JSON, PASS, RESULTS, USAGE, example, out_console


@click.command(epilog=example("ridgeline doctor --json"))
@RESULTS
@click.option(
    "--github", is_flag=True, help="Instead: what the repository's settings on GitHub leave open to strangers."
)
@JSON
def doctor(as_json: bool, results: Path, github: bool) -> int:
    """What this machine is, what can be measured on it, what is broken and what to do about it."""
    if github:
        return github_settings.examine(as_json)
    diagnosis = examination.diagnose(Path.cwd(), results)
    if as_json:
        click.echo(json.dumps(diagnosis.document(), indent=1))
    else:
        examination.show(diagnosis, out_console())
    return USAGE if diagnosis.worst == "error" else PASS
