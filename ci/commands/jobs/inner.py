"""The command inside a job, checked before it is queued: a job that waits for hours must not die of a typing error."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ci.calling import VERBS
from ci.commands.common.checkouts import one_checkout
from ci.executors import Sharding
from ci.git.command import GitError

ALIASES: Mapping[str, tuple[str, ...]] = {"nightly": ("run", "--tier", "nightly")}
"""What may stand for a verb."""

NO_JOBS = {"jobs", "submit", "cancel", "runner"}
"""Verbs that deal with jobs and are none."""


@dataclasses.dataclass(frozen=True)
class InnerCommand:
    """A command of ours: the last word of its verb, all arguments with the verb first, and what they were parsed to.

    options: the names of the options it has.
    """

    verb: str
    arguments: tuple[str, ...]
    values: Mapping[str, object]
    options: frozenset[str]

    @property
    def out(self) -> str:
        """The file of --out, "" where none was given."""
        return str(self.values.get("out") or "")

    @property
    def without_out(self) -> tuple[str, ...]:
        """The arguments without --out."""
        kept: list[str] = []
        given = iter(self.arguments)
        for one in given:
            if one == "--out":
                next(given)
            elif not one.startswith("--out="):
                kept.append(one)
        return tuple(kept)


def parsed(arguments: Sequence[str]) -> InnerCommand:
    """The command, parsed as it will be when it runs.  Raises the usage error that it would end with."""
    context = click.get_current_context().find_root()
    given = [*ALIASES.get(arguments[0], arguments[:1]), *arguments[1:]]
    group = context.command
    assert isinstance(group, click.Group)
    try:
        verb, command, rest = group.resolve_command(context, given)
    except click.UsageError:
        verb, command, rest = given[0], None, []
    if not (command and verb) or isinstance(command, click.Group) or NO_JOBS & {*verb.split()}:
        known = ", ".join(sorted({*group.list_commands(context), *ALIASES} - NO_JOBS))
        raise click.UsageError(f"{verb!r} is not a verb that can be a job; after -- comes one of {known}")
    with command.make_context(verb, list(rest), parent=click.Context(group, info_name="ridgeline")) as inner:
        values: dict[str, object] = dict(inner.params)
    options = frozenset(str(parameter.name) for parameter in command.params)
    return InnerCommand(verb.split()[-1], (*verb.split(), *rest), values, options)


def sharding(command: InnerCommand, shards: int) -> Sharding:
    """How the command is run on a cluster: what it appends to --out is kept line by line, and it is resumed.

    `run` without --out is recorded in the end, as it would be here; shards of `ab` are judged together, and those of a
    sweep are shown together.
    """
    numbered, dealt = "first_trial" in command.options, "shard" in command.options
    if shards > 1 and not (numbered or dealt or command.verb == "ab"):
        raise click.UsageError(f"--array {shards}: {command.verb!r} cannot be split; `run`, `ab` and `sweep` can")
    if "out" not in command.options:
        return Sharding(shards)
    return Sharding(
        shards=shards,
        publishes=True,
        resumes="resume" in command.options,
        first_trial=_number(command.values["first_trial"]) if numbered else None,
        trials=_number(command.values["trials"]) if numbered else 0,
        dealt=dealt,
        out=command.out,
        finish=_finish(command, shards),
    )


def _finish(command: InnerCommand, shards: int) -> tuple[str, ...]:
    if command.verb == "ab" and shards > 1:
        return (*VERBS, "ab", "--replay")
    if "shard" in command.options and shards > 1:
        return (*VERBS, *command.without_out, "--show", "--from")
    if command.verb == "run" and not command.out:
        return (*VERBS, "records", "add", "--results", str(command.values["results"]))
    return ()


def commit(command: InnerCommand) -> str:
    """The commit that a job will measure, "" where that is not this clone's HEAD.

    GitError if its numbers would belong to no commit, and it is to be recorded.
    """
    if command.verb not in ("run", "sweep") or command.values["commit"] or command.values["tree"]:
        return ""
    head = one_checkout(None, None, None)
    if command.verb == "run" and not command.out and head.dirty:
        said = f"{head.path} has {head.changes}, so its numbers belong to no commit"
        raise GitError(f"{said}: commit them, or keep a trial file with --out FILE")
    return head.commit.hash if head.commit else ""


def _number(value: Any) -> int:
    return int(value)
