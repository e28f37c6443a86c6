"""How we measure."""

import os
import sys

if sys.argv[:1] and sys.argv[0].endswith(os.path.join("asv", "benchmark.py")):
    # asv imports every module of this package and takes functions by their names: it gets to see the suite alone.
    from benchmarks import suite

    globals().update(suite.classes())
    __path__ = []
