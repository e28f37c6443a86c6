"""Seconds of CPU and memory of building a large site, part by part: afresh, with one more commit, and once more.

    python -m tests.dashboards.measure_site --series 3000 --commits 1000

The frame is synthetic and in memory (`ci.records.store.load` has its own measurement), and so is no history of events;
every view of `dashboards.views.listed` is built with it, and listed by itself.  Not a test: it has no limit to hold.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from ci.records import derived
from dashboards import build, kernel_page, lanes, overview, script
from dashboards.views import SiteInput
from tests.dashboards import synthetic


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Print the CPU seconds of a block, and the most memory so far."""
    begin = time.process_time()
    yield
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{what:44} {time.process_time() - begin:7.2f} s   {most:5.2f} GiB")


def parts(frame: pd.DataFrame) -> None:
    """What the data of the overview and of the kernels' pages are made of."""
    with told("  derive rates and ratios"):
        frame = derived.derive(frame)
    with told("  order of history, texts and numbers tidied"):
        lane = lanes.lanes(lanes.tidy(frame))[0]
    with told("  columns, one sort"):
        rows = lane.columns
    with told("  digests of the kernels"):
        for part in rows.parts("kernel"):
            part.digest()
    with told("  the overview"):
        overview.overview_data(rows)
    with told("  the kernels' data"):
        data = [kernel_page.kernel_data(part) for part in rows.parts("kernel")]
    with told("  the kernels' data as JSON"):
        size = sum(len(script.script_json(one)) for one in data)
    print(f"  {size / 1e6:.0f} MB of JSON for {len(rows):,} rows")


def views(frame: pd.DataFrame) -> None:
    """Each view by itself."""
    records = SiteInput(lanes.tidy(derived.derive(frame)))
    for view in build.VIEWS:
        with told(f"  view {view.name}"):
            for _, value in view.data(records):
                script.script_json(value)
            for _ in view.files(records):
                pass


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=3000)
    parser.add_argument("--commits", type=int, default=1000)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for what, commits in (("but one commit, afresh", -1), ("one more commit", 0), ("again", 0)):
            frames = [synthetic.large(wanted.series, wanted.commits + commits)]  # a history only grows
            with told(f"the whole site: {what}"):
                whole(frames, Path(folder) / "site")
    frame = synthetic.large(wanted.series, wanted.commits)
    parts(frame)
    views(frame)


def whole(frames: list[pd.DataFrame], out: Path) -> None:
    """As `dashboards.build.build` does it: nobody holds the frame as it was loaded."""
    frame = derived.derive(frames.pop())
    frame = lanes.tidy(frame)
    build._build(SiteInput(frame), out, None, ())


if __name__ == "__main__":
    main()
