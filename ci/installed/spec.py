"""What a declaration imports: `from ridgeline.spec import Kernel, Case, Cost, Tolerance`.  See kernels/spec.py."""

from ridgeline.house.kernels.spec import *  # noqa: F403 - everything that kernels/spec.py defines
