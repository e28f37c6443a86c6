"""`ridgeline plot`: a figure of the records for a comment or a paper."""

from __future__ import annotations

from pathlib import Path

import click

from ci.harness import MeasureError, follow, options, program
from ci.options import DRY_RUN, FILE, PASS, RESULTS, err_console, flag, option, verb

FIGURES = ("history", "bytes", "backends", "shapes", "roofline", "scaling", "cus", "machine", "sweep")
FORMATS = (".png", ".svg", ".pdf")

EXAMPLES = """ridgeline plot shapes --kernel gemm --machine h200x1-537ca5d2 --out gemm.png
  ridgeline plot cus --out cus.svg
  ridgeline plot machine --machine h200x4-b112377d --out machine.png
  ridgeline plot sweep --kernel gemm --out sweep.svg"""


@verb(EXAMPLES)
@click.argument("what", type=click.Choice(FIGURES))
@option("--machine NAME", "Of this machine (default: the only one that has it).")
@option("--kernel NAME", "Of this operator.")
@option("--case NAME", "Of this case.")
@option("--rate NAME", "tflops, gbs, algbw, busbw or time (default: as the case is quoted).")
@flag("--plain", "A history without its steps.")
@option("--out", ".png, .svg or .pdf", FILE, required=True)
@RESULTS
@DRY_RUN
def plot(
    what: str,
    machine: str | None,
    kernel: str | None,
    case: str | None,
    rate: str | None,
    plain: bool,
    out: Path,
    results: Path,
    dry_run: bool,
) -> int:
    """Draw one figure of the records; the same records give the same file.

    history: a case over the commits, with its steps.  bytes: a collective over its payload.  backends: all backends of
    an operator beside the baseline.  shapes: speed over the size of a case, with the roof.  roofline: all cases under
    the roofs.  scaling: over the number of ranks.  cus: over the CUs that a collective takes.  machine: its GPUs over
    time.  sweep: the points of an operator's newest recorded sweep beside their anchor (`ridgeline study` draws those
    of studies).
    """
    if out.suffix.lower() not in FORMATS:
        raise click.BadParameter(
            f"{str(out)!r} ends in {out.suffix!r}; allowed are {', '.join(FORMATS)}", param_hint="--out"
        )
    if dry_run:
        click.echo(f"would draw {what} from {results} into {out}")
        return PASS
    argv = [*program("dashboards.figures", what), *(["--plain"] if plain else [])]
    argv += options(machine=machine, kernel=kernel, case=case, rate=rate, results=results.resolve(), out=out.resolve())
    ended = follow(argv, err_console(), f"drawing {what}", stdout=False, echo=False)
    if ended.code:
        raise MeasureError(ended.last if ended.said else f"nothing was drawn ({ended.how})")
    click.echo(out)
    return PASS
