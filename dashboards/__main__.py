"""python -m dashboards: build the site from the records."""

from __future__ import annotations

import argparse
import functools
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dashboards import draft

EXAMPLE = """example:
  python -m dashboards --results results --out site --repo-url https://github.com/OWNER/NAME
then open site/index.html in a browser; no server is needed."""

MEMORY = {"ARROW_DEFAULT_MEMORY_POOL": "system", "NUMPY_MADVISE_HUGEPAGE": "0"}
"""Read when the libraries are imported.  A build fills memory once: clearing it in huge pages, of which a part is never
used, took 0.5 s of CPU of reading one more commit of 3,000 series x 1,000 (a virtual machine, 2026-11-22)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: built, its path on stdout; 3: it could not be built."""
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
    parser.add_argument(
        "--report", type=Path, action="append", default=[], metavar="FILE", help="a report of `ridgeline check` to show"
    )
    wanted = parser.parse_args(arguments)
    made_of = draft.inputs(wanted.results, wanted.repo_url, wanted.report)
    if not draft.stands(wanted.out, wanted.results, made_of) and (why := _build(wanted)):
        print(f"error: {why}", file=sys.stderr)
        return 3
    draft.remember(wanted.out, wanted.results, made_of)
    print(wanted.out.absolute())
    return 0


def _build(wanted: argparse.Namespace) -> str:
    """Build the site; why it could not be built."""
    for name, value in MEMORY.items():
        os.environ.setdefault(name, value)
    import pandas as pd  # the libraries of a build take a second to import

    from ci.history.triage import TriageError
    from dashboards.build import SiteError, build
    from dashboards.sources import made_apart as apart
    from dashboards.views.pull_request import ReportFileError

    # Texts as Python has them: figures take them one by one, in a quarter less time than out of Arrow (2026-11-26).
    pd.set_option("mode.string_storage", "python")
    # A build keeps most of what it makes: looking for garbage took a tenth of its time (this repository, 2026-11-22).
    gc.set_threshold(200_000, 20, 100)
    try:
        whole = draft.untouched(wanted.out, wanted.results)
        build(wanted.results, wanted.out, wanted.repo_url, wanted.report, whole, apart)
    except (SiteError, ReportFileError, TriageError, OSError) as error:
        return str(error)
    return ""


if __name__ == "__main__":
    ended = main()
    sys.stdout.flush()
    os._exit(ended)  # to take millions of values apart one by one took 0.3 s of CPU (this repository, 2026-11-26)
