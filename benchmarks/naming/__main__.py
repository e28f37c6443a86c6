"""`python -P PATH/benchmarks/naming/__main__.py MODULE ARGUMENTS`: main() of a module of ours beside foreign code."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Settle, then run it."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from benchmarks import naming

    naming.settle()
    del sys.argv[0]
    naming.our(sys.argv[0]).main()


if __name__ == "__main__":
    main()
