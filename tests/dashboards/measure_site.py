"""Seconds of CPU and memory of building a large site: afresh, with one more commit, and once more.

    python -m tests.dashboards.measure_site --series 3000 --commits 1000

The records are synthetic (`tests.dashboards.synthetic`).  A build reads them, makes the data of all pages and
writes the site; so is the reading of the rows that the history is judged by, and that history itself is told apart
(with --history).  Each build is a process of its own; so are the libraries that it imports.  With --command it is
`python -m dashboards` that builds, as a person feels it.  With --chromium the seconds until the compare page can be
used are told too.  Not a test: it has no limit to hold.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import gc
import multiprocessing
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from dashboards import standing
from tests import needed
from tests.dashboards import chromium, synthetic
from tests.dashboards import synthetic as large_records

LOADED = "document.querySelector('#shown') && document.querySelector('#shown').textContent"


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Print the CPU seconds of a block, and the most memory so far."""
    begin = time.process_time()
    yield
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{what:44} {time.process_time() - begin:7.2f} s   {most:5.2f} GiB", flush=True)


def build(what: str, results: Path, out: Path, profile: bool, with_history: bool) -> None:
    """The site in this process."""
    gc.set_threshold(200_000, 20, 100)  # as `python -m dashboards` does
    with told(f"{what}: importing libraries"):
        import pandas as pd

        from dashboards import build as site
        from dashboards import history
        from dashboards.views import SiteInput
    profiler = cProfile.Profile(time.process_time) if profile else contextlib.nullcontext()
    untouched = standing.untouched(out, results)
    with told(f"{what}: rows for the history"), profiler:
        sources, _, kept = site.read(results)
        rows = site.rows_for_history(results, sources, kept)
    if with_history:
        with told(f"{what}: the history itself"):
            history.read(rows, results)
    del rows
    with told(f"{what}: the site"), profiler:
        blank = SiteInput(pd.DataFrame(), results_dir=results, known=())
        site._build(blank, sources, out, None, (), kept, untouched)
        standing.remember(out, results, "")
    if isinstance(profiler, cProfile.Profile):
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(60)


def command(what: str, results: Path, out: Path) -> None:
    """The site by its command: seconds of CPU of all its processes, and of the clock."""
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = [sys.executable, "-m", "dashboards", "--results", str(results), "--out", str(out)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{what + ': the command':44} {used:7.2f} s   {wall:5.2f} s (wall)", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=3000)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="keep the records and the site here")
    parser.add_argument("--profile", action="store_true", help="also the functions of the build with one more commit")
    parser.add_argument("--history", action="store_true", help="also the analysis of the history")
    parser.add_argument("--command", action="store_true", help="build by the command, told as a whole")
    parser.add_argument("--chromium", action="store_true", help="also the compare page in a browser")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = (wanted.folder or Path(folder)) / "results"
        site = results.parent / "site"
        in_process(all_but_one, wanted.series, wanted.commits, results)
        built(wanted, "all but one commit, afresh", results, site)
        in_process(one_more, wanted.series, wanted.commits, results)
        built(wanted, "one more commit", results, site, wanted.profile)
        built(wanted, "again", results, site)
        if wanted.chromium:
            compare_page(site)


def built(wanted: argparse.Namespace, what: str, results: Path, site: Path, profile: bool = False) -> None:
    """One build, measured as wanted."""
    if wanted.command:
        command(what, results, site)
    else:
        in_process(build, what, results, site, profile, wanted.history)


def all_but_one(series: int, commits: int, results: Path) -> None:
    """A history without its newest commit."""
    large_records.add(synthetic.large(series, commits - 1), results)


def one_more(series: int, commits: int, results: Path) -> None:
    """The newest commit of the history."""
    frame = synthetic.large(series, commits)
    large_records.add(frame[-series:].reset_index(drop=True), results)


def in_process(function: object, *values: object) -> None:
    """Call a function in a fresh process."""
    child = multiprocessing.get_context("spawn").Process(target=function, args=values)
    child.start()
    child.join()
    if child.exitcode:
        raise SystemExit(child.exitcode)


def compare_page(site: Path) -> None:
    """Seconds until the table of the compare page is there, of three visits."""
    program = needed.found("Chromium")
    if program is None:
        raise SystemExit("there is no Chromium here: install the package chromium")
    with chromium.browser(program) as page:
        for _ in range(3):
            begin = time.monotonic()
            page.open(f"file://{site.absolute()}/compare.html")
            page.wait(LOADED)
            print(f"{'compare page, until its table is there':44} {time.monotonic() - begin:7.2f} s (wall)")


if __name__ == "__main__":
    main()
