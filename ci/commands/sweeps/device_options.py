"""Options of `ridgeline sweep`, `tune` and `study`: for which device, and for how long.  Without pandas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

Given = Mapping[str, Any]
"""The options of a command line, by name."""

MINUTES = click.FloatRange(0, min_open=True)
BUDGET = click.option("--budget", type=MINUTES, metavar="MIN", help="GPU minutes that this call may take.")
ARCH = click.option(
    "--arch", metavar="NAME", help="With --dry-run: for gfx942, gfx950 or sm_90 instead of this machine."
)
COMPUTE_UNITS = click.option(
    "--compute-units", type=click.IntRange(1), metavar="N", help="With --arch: of a device with this many CUs."
)
NO_COMPILE = click.option("--no-compile", is_flag=True, help="Do not compile ahead: no point is pruned by its code.")
