"""`python -m ridgeline.program MODULE ARGUMENTS`: a program of ours that is no verb, such as ci.slurm.jobs."""

from __future__ import annotations

import runpy
import sys

from ridgeline import enter


def main() -> None:
    """Run the module as `python -m MODULE` does in a clone."""
    if len(sys.argv) < 2:
        sys.exit("python -m ridgeline.program needs the name of a module, such as ci.slurm.jobs")
    enter()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
