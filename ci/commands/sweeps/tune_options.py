"""Options of `ridgeline tune`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click

from ci.commands.sweeps.device_options import ARCH, MINUTES
from ci.options import BACKEND, CASE, NewFile, together

EXAMPLES = """ridgeline tune gemm --case 'n4096_k4096_*' --budget 10
  ridgeline tune gemm --from sweep.jsonl --dry-run
  ridgeline tune all --verify --budget 20 --out verified.jsonl
  ridgeline tune gemm --verify --arch sm_90 --dry-run"""

ASKED = together(
    CASE,
    BACKEND,
    click.option(
        "--from",
        "files",
        multiple=True,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Trial files of a sweep: nothing is measured (repeatable).",
    ),
    click.option("--verify", is_flag=True, help="Only the entries that are there, and only if their code has changed."),
    click.option(
        "--budget",
        type=MINUTES,
        metavar="MIN",
        help="GPU minutes to spend; with --verify on the entries that were confirmed longest ago.",
    ),
    click.option(
        "--out",
        type=NewFile(),
        metavar="FILE",
        help="Also add the lines to this trial file; what was compiled goes beside it.",
    ),
    click.option(
        "--code",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="With --from: what was compiled where it was measured (default: the file beside FILE).",
    ),
    click.option(
        "--propose",
        metavar="NAME",
        default="",
        help="Open a pull request with the new tables, from the branch ridgeline/tuned/NAME; needs GITHUB_TOKEN.",
    ),
    ARCH,
)
"""Which entries, and from what."""


@dataclasses.dataclass(frozen=True)
class TuneWish:
    """What was asked for.  budget: GPU minutes."""

    cases: Sequence[str] = ()
    backends: Sequence[str] = ()
    files: Sequence[Path] = ()
    verify: bool = False
    budget: float | None = None
    out: Path | None = None
    code: Path | None = None
    propose: str = ""
    arch: str | None = None
    dry_run: bool = False
