"""`ridgeline emulate`: programs on an emulated MI300X or MI355X, and code objects executed alone; counts, no times."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.emulation import hazards
from benchmarks.emulation.device.program import emulated
from benchmarks.emulation.installed import missing
from benchmarks.emulation.launch import LIMIT, Execution, execute
from benchmarks.emulation.watching import Trace
from ci.options import ANY, Given, NewFile, Parsed, WordsCommand, flag, option, several, verb, words_behind
from ci.whole_files import replace

MOST_CONFLICTS = 5
"""Instructions with the most bank conflicts that are listed; --json has all."""

EXAMPLES = """ridgeline emulate --arch gfx942 --arch gfx950 -- pytest tests
  ridgeline emulate softmax.hsaco --grid 5,1,1 --warps 4 --arguments in.npz --out out.npz"""

TARGETS = click.Choice(["gfx942", "gfx950"])


class ProgramOrFile(WordsCommand):
    """What stands behind `--` is a program with its arguments, as they are."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As it is, and what to type where the `--` lacks."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" in error.message:
                hint = "a program stands behind --, as in `ridgeline emulate -- pytest tests`"
                raise click.UsageError(f"{error.message}: {hint}", ctx) from error
            raise

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Both forms."""
        return ["[OPTIONS]", "-- PROGRAM [ARGUMENTS]  |  FILE [OPTIONS]"]


ALONE = "Options of a code object"

LAST = 20
"""Lines of a trace that are shown of a launch that breaks off."""


def _numbers(fewest: int, most: int, allowed: str) -> Parsed:
    """Numbers with commas between them, `fewest` to `most`."""

    def parse(text: str) -> tuple[int, ...]:
        parts = text.split(",")
        if not fewest <= len(parts) <= most or not all(part.strip().isdecimal() for part in parts):
            raise ValueError(f"{text!r}: {allowed}")
        return tuple(map(int, parts))

    return Parsed("numbers", parse)


GRID = _numbers(1, 3, "one to three numbers of workgroups, such as 16 or 16,4,1")
WAVE = _numbers(2, 2, "a workgroup and a wave in it, such as 0,3")


@verb(EXAMPLES, "Examples", cls=ProgramOrFile)
@click.argument("file", type=ANY, required=False)
@several(
    "--arch ARCH -> arches", "gfx942 (MI300X, the default) or gfx950 (MI355X); a program runs once on each.", TARGETS
)
@flag(
    "--no-hazards", "Leave out whether waves of a workgroup race in the LDS, and registers are used before their wait."
)
@option(
    "--configurations",
    "Of a kernel under @triton.autotune: the first configuration that fits, or all, which are compared.",
    click.Choice(["first", "all"]),
    default="first",
)
@option(
    "--json [FILE] -> json_file",
    "With a program: FILE gets a row for each launch. With a code object: print the result as JSON.",
    is_flag=False,
    flag_value="-",
)
@option(
    "--arguments IN.npz",
    "Arrays of the kernel's arguments, in the order of their sorted names (00_x, 01_y, ...): an "
    "array is a buffer, a 0-d array a scalar.",
    ANY,
    heading=ALONE,
)
@option("--grid X,Y,Z", "Workgroups.", GRID, default="1,1,1", heading=ALONE)
@option("--warps N", "Waves of 64 lanes in a workgroup.", click.IntRange(1, 16), default=4, heading=ALONE)
@option("--out OUT.npz", "Write every buffer as it is after the launch, under its name.", NewFile(), heading=ALONE)
@option("--kernel NAME", "The kernel, where the code object has several.", heading=ALONE)
@option("--lds BYTES", "Dynamic LDS of a workgroup (default: all that the chip has).", click.IntRange(0), heading=ALONE)
@option("--limit N", "Stop after so many instructions.", click.IntRange(1), default=LIMIT, heading=ALONE)
@option("--trace WORKGROUP,WAVE", "Print each instruction of one wave, with what it wrote.", WAVE, heading=ALONE)
def emulate(given: Given) -> int | None:
    """Run a Triton program or its tests on an MI300X or MI355X that is emulated on this CPU, as they are: pytest, a
    script, anything that starts Python. Or execute one compiled kernel on arguments from a file.

    It executes the machine code: right or wrong, and exact counts, no times.
    """
    if why := missing():
        raise click.ClickException(why)
    if given.no_hazards:
        os.environ[hazards.OFF] = "1"
    if program := words_behind():
        if given.file:
            raise click.UsageError(f"{given.file} and a program behind --: name one of them")
        return _program(program, given)
    if given.json_file and not given.file:
        given.file, given.json_file = Path(given.json_file), "-"
    if not given.file or not given.arguments:
        raise click.UsageError(
            "name a program behind --, as in `ridgeline emulate -- pytest tests`, or a code object with its --arguments"
        )
    if len(given.arches) > 1:
        raise click.UsageError("a code object is for one --arch")
    _code_object(given)
    return None


def _program(command: Sequence[str], given: Given) -> int:
    """Run it on each target; the exit code: 0 if all passed."""
    runs = []
    for arch in given.arches or ["gfx942"]:
        try:
            run = emulated(command, arch, given.configurations)
        except FileNotFoundError as error:
            raise click.ClickException(str(error)) from error
        runs.append(run)
        click.echo("\n".join([*(f"{arch}: {failure}" for failure in run.failures), run.summary()]), err=True)
        if run.stopped:
            break
    if given.json_file:
        rows = "".join(json.dumps(row) + "\n" for run in runs for row in run.launches)
        if given.json_file == "-":
            click.echo(rows, nl=False)
        else:
            replace(Path(given.json_file), rows)
    if runs[-1].stopped:
        raise KeyboardInterrupt
    return 0 if all(run.passed for run in runs) else 1


def _code_object(given: Given) -> None:
    """Execute a code object alone, and print what it did."""
    trace = Trace(*given.trace) if given.trace else None
    try:
        with np.load(given.arguments, allow_pickle=False) as archive:
            arguments = {
                name: np.ascontiguousarray(archive[name]).reshape(archive[name].shape) for name in sorted(archive)
            }
        done = execute(
            given.file.read_bytes(), list(arguments.values()), (*given.grid, 1, 1)[:3], given.warps,
            arch=next(iter(given.arches), None), kernel=given.kernel, lds_bytes=given.lds, limit=given.limit,
            watch=trace,
        )  # fmt: skip
    except (OSError, ValueError, ImportError) as error:
        click.echo("".join(f"{line}\n" for line in trace.lines[-LAST:]) if trace else "", err=True, nl=False)
        raise click.ClickException(str(error)) from error
    if trace:
        if not trace.lines:
            last = f"workgroup {math.prod(given.grid) - 1} and wave {given.warps - 1}"
            raise click.UsageError(f"--trace {given.trace[0]},{given.trace[1]}: the last are {last}, counted from 0")
        click.echo("\n".join(trace.lines), err=bool(given.json_file))
    if given.out:
        _write(Path(given.out), {name: value for name, value in arguments.items() if value.ndim})
    click.echo(json.dumps(_as_json(done)) if given.json_file else _text(done))


def _write(path: Path, buffers: dict[str, Any]) -> None:
    content = io.BytesIO()
    np.savez(content, **buffers)
    replace(path, content.getvalue())


def _as_json(done: Execution) -> dict[str, Any]:
    return {
        "kernel": done.kernel,
        "arch": done.arch,
        "instructions": done.total,
        "by_instruction": done.instructions,
        "bytes": done.bytes,
        "counts": done.counts.as_json(),
    }


def _text(done: Execution) -> str:
    counts = done.counts
    conflicts = sorted(counts.conflicts.items(), key=lambda item: -item[1])[:MOST_CONFLICTS]
    rows = [
        *((times, name) for name, times in done.instructions.items()),
        *((count, f"bytes: {what}") for what, count in counts.bytes.items()),
        *((count, f"requests of 64 bytes: {what}") for what, count in counts.requests.items()),
        (round(100 * (counts.coalescing or 0), 1), "% of the requested bytes are used"),
        (counts.matrix_cycles, "cycles of matrix units"),
        (counts.lds_cycles, "cycles of the LDS"),
        (counts.lds_cycles - counts.lds_passes, "of them for bank conflicts"),
        (counts.divergent, "branches into code that only some lanes need"),
        (counts.idle, "lanes off in vector instructions"),
        *((count, f"cycles for bank conflicts of {what}") for what, count in conflicts),
    ]
    head = f"{done.kernel} on {done.arch}: {done.total:,} instructions executed by waves; an emulator: no times"
    return "\n".join([head, *(f"{count:12,}  {what}" for count, what in rows if count)])
