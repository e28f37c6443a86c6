"""python -m dashboards: build the site from the records."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dashboards.build import SiteError, build


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: built, its path on stdout; 3: it could not be built."""
    parser = argparse.ArgumentParser(
        prog="python -m dashboards",
        description=(__doc__ or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python -m dashboards --results results --out site --repo-url https://github.com/OWNER/NAME\n"
        "then open site/index.html in a browser; no server is needed.",
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="records to show (default: results)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("site"), metavar="DIR", help="folder to build or replace (default: site)"
    )
    parser.add_argument("--repo-url", metavar="URL", help="link commits to URL/commit/HASH (default: no links)")
    wanted = parser.parse_args(arguments)
    try:
        print(build(wanted.results, wanted.out, wanted.repo_url))
    except (SiteError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
