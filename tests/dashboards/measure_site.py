"""Seconds of CPU and of the clock of building a large site: afresh, with one more commit, and once more.

    python -m tests.dashboards.measure_site --series 3000 --commits 1000

The records are synthetic.  It is `python -m dashboards` that builds, as a person feels it.  With --chromium the seconds
until the compare page can be used are told too.  Not a test: it has no limit to hold.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import needed
from tests.dashboards import chromium, synthetic

LOADED = "document.querySelector('#shown') && document.querySelector('#shown').textContent"


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
    parser.add_argument("--chromium", action="store_true", help="also the compare page in a browser")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = (wanted.folder or Path(folder)) / "results"
        site = results.parent / "site"
        in_process(all_but_one, wanted.series, wanted.commits, results)
        command("all but one commit, afresh", results, site)
        in_process(one_more, wanted.series, wanted.commits, results)
        command("one more commit", results, site)
        command("again", results, site)
        if wanted.chromium:
            compare_page(site)


def all_but_one(series: int, commits: int, results: Path) -> None:
    """A history without its newest commit."""
    synthetic.add(synthetic.large(series, commits - 1), results)


def one_more(series: int, commits: int, results: Path) -> None:
    """The newest commit of the history."""
    frame = synthetic.large(series, commits)
    synthetic.add(frame[-series:].reset_index(drop=True), results)


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
