"""python -m dashboards: build the site from the records."""

from __future__ import annotations

import argparse
import functools
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dashboards import files

EXAMPLE = """example:
  python -m dashboards --results results --out site --repo-url https://github.com/OWNER/NAME
then open site/index.html in a browser; no server is needed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: built, its path on stdout; 2: built without records that stderr names; 3: it could not be built."""
    parser = argparse.ArgumentParser(
        prog="python -m dashboards",
        description=(__doc__ or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXAMPLE,
    )
    option = functools.partial(parser.add_argument, type=Path, metavar="DIR")
    option("--results", default=Path("results"), help="records to show (default: results)")
    option("--out", default=Path("site"), help="folder to build or replace (default: site)")
    parser.add_argument("--repo-url", metavar="URL", help="link commits to URL/commit/HASH (default: no links)")
    wanted = parser.parse_args(arguments)
    made_of = files.inputs(wanted.results, wanted.repo_url)
    unread = 0
    if not files.stands(wanted.out, made_of):
        gc.disable()  # a build makes few circles, and looking for them takes a fifteenth of it
        from ci.history.triage import TriageError  # the libraries of a build take a second to import
        from dashboards.build import build

        try:
            site = build(wanted.results, wanted.out, wanted.repo_url, made_of)
        except (files.SiteError, TriageError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 3
        unread = site.history.unread
        for sentence in site.problems:
            print(sentence, file=sys.stderr)
    print(wanted.out.absolute())
    return 2 if unread else 0


if __name__ == "__main__":
    ended = main()
    sys.stdout.flush()
    os._exit(ended)  # to take what was made apart, object by object, takes a tenth of a build
