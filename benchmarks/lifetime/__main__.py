"""Run a module as `python -m` does, in a process that ends with the one that started it; see benchmarks.lifetime."""

from __future__ import annotations

import runpy
import sys

from benchmarks.lifetime import end_with_starter

if __name__ == "__main__":
    end_with_starter()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
