"""`ridgeline events`: what changed over the history of records, since when, why, and who looks after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from ci.alerts import settings
from ci.commands.history import listing
from ci.git.command import GitError
from ci.git.repository import Repository
from ci.history import reading, triage
from ci.history.analysis import History
from ci.history.types import EventKind, HistoryEvent
from ci.options import (
    DRY_RUN,
    JSON,
    PASS,
    REGRESSION,
    RESULTS,
    err_console,
    example,
    of_project,
    out_console,
    project_folder,
    together,
)
from ci.trials.file import RecordError

CODE = project_folder("--code", "code", "results_isa", "Folder of recorded machine code.")
TRIAGE = click.option(
    "--triage",
    "triage_file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=of_project("events"),
    show_default=str(triage.DEFAULT_FILE),
    help="File of the decisions about events.",
)
SOURCES = together(RESULTS, CODE, TRIAGE)
"""Where the history is read from."""


@click.command(epilog=example("ridgeline events --open --machine h200x1-537ca5d2"))
@click.option("--open", "only_open", is_flag=True, help="Only what needs attention: open or acknowledged.")
@click.option("--since", metavar="COMMIT", help="Only what began after this commit.")
@click.option("--machine", "machines", multiple=True, metavar="NAME", help="Only this machine (repeatable).")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice([str(kind) for kind in EventKind]), help="Only these kinds."
)
@click.option("--alert", is_flag=True, help="Also send alerts as --alerts says, each event once.")
@click.option(
    "--alerts",
    "alerts_file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=settings.DEFAULT_FILE,
    show_default=True,
    help="File that says who is alerted, and how.",
)
@SOURCES
@JSON
@DRY_RUN
def events(
    only_open: bool,
    since: str | None,
    machines: tuple[str, ...],
    kinds: tuple[str, ...],
    results: Path,
    code: Path,
    triage_file: Path,
    as_json: bool,
    alert: bool,
    alerts_file: Path,
    dry_run: bool,
) -> int:
    """Events of the history: which operators became slower or faster, since which commit, and why.

    Exits with 1 if an open regression of a kernel is among them.
    """
    asked = click.get_current_context().get_parameter_source("results")
    if not results.is_dir() and asked is ParameterSource.COMMANDLINE:
        said = f"{results} is not there, so nothing is known of any regression"
        raise RecordError(f"{said}: `ridgeline run` records there, --results names another folder")
    told = settings.load(alerts_file) if alert else None
    decisions = triage.load(triage_file)
    with err_console().status("reading the history"):
        history = reading.history(results, code, decisions)
    known = {event.machine for event in history.events}
    unknown = [name for name in machines if name not in known | {key.machine for key in history.steps}]
    fits = _filter(history, only_open, since, machines, kinds)
    chosen = [event for event in history.events if fits(event)]
    for name in unknown:
        click.echo(f"{name!r} has no event; machines that have: {', '.join(sorted(known)) or 'none'}", err=True)
    if as_json:
        click.echo(json.dumps(document(chosen, history), indent=1, allow_nan=False))
    else:
        listing.show(chosen, history, out_console(), all_code=EventKind.CODE in kinds)
    if told:
        _alert(history, told, results, dry_run)
    return REGRESSION if any(map(listing.is_regression, chosen)) else PASS


def _alert(history: History, told: settings.AlertSettings, results: Path, dry_run: bool) -> None:
    """Tell people what they do not know yet.  Raises AlertError if a channel refused."""
    from ci.alerts import channels, sending  # mail and HTTP take 0.2 s to import
    from ci.alerts.text import title

    file = results / sending.FILE
    sendings, waiting = sending.due(history, told, channels.channels(told), sending.read(file))
    for one in sendings:
        verb = "would tell" if dry_run else "tell"
        click.echo(f"{verb} {one.channel.name}: {one.status}: {title(one.event)}", err=True)
    if waiting:
        click.echo(f"{waiting} more events wait for the next run ({told.most} in one)", err=True)
    refused = [] if dry_run else list(sending.send(sendings, file))
    if refused:
        raise settings.AlertError("; ".join(dict.fromkeys(map(str, refused))))


def document(chosen: Sequence[HistoryEvent], history: History) -> dict[str, object]:
    """What --json prints."""
    looked = {"series": history.series, "points": history.points, "commits": len(history.commits)}
    return {"events": [event.as_json() for event in chosen], "notes": list(history.notes), "looked_at": looked}


def _filter(
    history: History, only_open: bool, since: str | None, machines: Sequence[str], kinds: Sequence[str]
) -> Callable[[HistoryEvent], bool]:
    later = _after(history, since) if since else None

    def fits(event: HistoryEvent) -> bool:
        return (
            (not only_open or event.state in listing.STANDING)
            and (not machines or event.machine in machines)
            and (not kinds or event.kind in kinds)
            and (later is None or event.first_bad.hash in later)
        )

    return fits


def _after(history: History, since: str) -> set[str]:
    """Recorded commits after `since`, which is one of them or any commit of the repository."""
    place = next((n for n, commit in enumerate(history.commits) if len(since) >= 7 and commit.startswith(since)), None)
    if place is not None:
        return set(history.commits[place + 1 :])
    try:
        repository = Repository(Path.cwd())
        before = repository.resolve(since).hash
        later = {commit.hash for commit in repository.commits(before, "HEAD")}
    except GitError as error:
        raise click.BadParameter(f"{since!r}: {error}", param_hint="--since") from None
    return later & set(history.commits)
