"""`ridgeline emulate`: a code object for MI300X or MI355X executed on this CPU; what it computes and what it counts."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.emulation.launch import LIMIT, Execution, execute
from benchmarks.emulation.watching import Trace
from ci.options import ANY, JSON, Given, NewFile, option, verb
from ci.whole_files import replace

MOST_CONFLICTS = 5
"""Instructions with the most bank conflicts that are listed; --json has all."""

EXAMPLE = "ridgeline emulate softmax.hsaco --grid 5,1,1 --warps 4 --arguments in.npz --out out.npz"


def _grid(_: click.Context, option: click.Parameter, value: str) -> tuple[int, int, int]:
    parts = value.split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdecimal() and int(part) for part in parts):
        raise click.BadParameter(f"{value!r}: one to three numbers of workgroups, such as 16 or 16,4,1", param=option)
    sizes = [int(part) for part in parts] + [1, 1]
    return sizes[0], sizes[1], sizes[2]


LAST = 20
"""Lines of a trace that are shown of a launch that breaks off."""


def _wave(_: click.Context, option: click.Parameter, value: str | None) -> tuple[int, int] | None:
    parts = value.split(",") if value else []
    if value and (len(parts) != 2 or not all(part.strip().isdecimal() for part in parts)):
        raise click.BadParameter(f"{value!r}: a workgroup and a wave in it, such as 0,3", param=option)
    return (int(parts[0]), int(parts[1])) if value else None


@verb(EXAMPLE)
@click.argument("file", type=ANY)
@option(
    "--arguments IN.npz",
    "Arrays of the kernel's arguments, in the order of their sorted names (00_x, 01_y, ...): an "
    "array is a buffer, a 0-d array a scalar.",
    ANY,
    required=True,
)
@option("--grid X,Y,Z", "Workgroups.", default="1,1,1", callback=_grid)
@option("--warps N", "Waves of 64 lanes in a workgroup.", click.IntRange(1, 16), default=4)
@option("--out OUT.npz", "Write every buffer as it is after the launch, under its name.", NewFile())
@option("--arch ARCH", "Refuse code for another target: gfx942 or gfx950.", click.Choice(["gfx942", "gfx950"]))
@option("--kernel NAME", "The kernel, where the code object has several.")
@option("--lds BYTES", "Dynamic LDS of a workgroup (default: all that the chip has).", click.IntRange(0))
@option("--limit N", "Stop after so many instructions.", click.IntRange(1), default=LIMIT)
@option("--trace WORKGROUP,WAVE", "Print each instruction of one wave, with what it wrote.", callback=_wave)
@JSON
def emulate(given: Given) -> None:
    """Execute a compiled kernel on this CPU, on arguments from a file, without a GPU.

    Prints what it executed, by instruction, and the bytes it moved: exact counts, no times.
    """
    trace = Trace(*given.trace) if given.trace else None
    try:
        with np.load(given.arguments, allow_pickle=False) as archive:
            arguments = {
                name: np.ascontiguousarray(archive[name]).reshape(archive[name].shape) for name in sorted(archive)
            }
        done = execute(
            given.file.read_bytes(), list(arguments.values()), given.grid, given.warps,
            arch=given.arch, kernel=given.kernel, lds_bytes=given.lds, limit=given.limit, watch=trace,
        )  # fmt: skip
    except (OSError, ValueError, ImportError) as error:
        click.echo("".join(f"{line}\n" for line in trace.lines[-LAST:]) if trace else "", err=True, nl=False)
        raise click.ClickException(str(error)) from error
    if trace:
        if not trace.lines:
            workgroups = given.grid[0] * given.grid[1] * given.grid[2]
            raise click.UsageError(
                f"--trace {given.trace[0]},{given.trace[1]}: there are workgroups 0 to {workgroups - 1}, "
                f"each with waves 0 to {given.warps - 1}"
            )
        click.echo("\n".join(trace.lines), err=given.as_json)
    if given.out:
        _write(Path(given.out), {name: value for name, value in arguments.items() if value.ndim})
    click.echo(json.dumps(_as_json(done)) if given.as_json else _text(done))


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
    lines = [f"{done.kernel} on {done.arch}: {done.total:,} instructions executed by waves; an emulator: no times"]
    lines += [f"{times:12,}  {name}" for name, times in done.instructions.items()]
    counts = done.counts
    lines += [f"{count:12,}  bytes: {what}" for what, count in counts.bytes.items()]
    lines += [f"{count:12,}  requests of 64 bytes: {what}" for what, count in counts.requests.items()]
    others = {
        "% of the requested bytes are used": round(100 * (counts.coalescing or 0), 1) if counts.requests else 0,
        "cycles of matrix units": counts.matrix_cycles,
        "cycles of the LDS": counts.lds_cycles,
        "of them for bank conflicts": counts.lds_cycles - counts.lds_passes,
        "branches into code that only some lanes need": counts.divergent,
        "lanes off in vector instructions": counts.idle,
    }
    lines += [f"{count:12,}  {what}" for what, count in others.items() if count]
    conflicts = sorted(counts.conflicts.items(), key=lambda item: -item[1])[:MOST_CONFLICTS]
    return "\n".join([*lines, *(f"{count:12,}  cycles for bank conflicts of {what}" for what, count in conflicts)])
