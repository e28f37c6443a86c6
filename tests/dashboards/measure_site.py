"""Seconds of CPU and peak memory of building a large site from rows in memory.

    python -m tests.dashboards.measure_site --series 3000 --commits 1000

The rows are synthetic: deriving, the history and every file are measured, reading records is not.  Not a test: it has
no limit to hold.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from ci.records import derived
from dashboards import build, files
from tests.dashboards import synthetic


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=3000)
    parser.add_argument("--commits", type=int, default=1000)
    wanted = parser.parse_args()
    frame = synthetic.large(wanted.series, wanted.commits)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.process_time()
        site = build.of_frame(derived.derive(frame), Path(folder) / "results")
        print(f"derived, with its history        {time.process_time() - begin:7.2f} s of CPU", flush=True)
        begin = time.process_time()
        made = build.site_files(site)
        size = sum(map(len, made.values())) / 1e6
        print(f"every file, {size:7.1f} MB         {time.process_time() - begin:7.2f} s of CPU")
        begin = time.process_time()
        files.write(Path(folder) / "site", made, "")
        print(f"written                          {time.process_time() - begin:7.2f} s of CPU")
    print(f"peak memory                      {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:7.2f} GiB")


if __name__ == "__main__":
    main()
