"""The pictures of the README: `make pictures` draws a verdict as the terminal shows it, and the front page.

    python -m tests.study.pictures .github/pictures --site site

The page is that of a site built before (`ridgeline site`), taken by a headless Chromium.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path

import click
from PIL import Image
from rich.console import Console

from ci.judging import policy
from ci.judging.judge import judge
from ci.report import model, terminal
from ci.trials.comparisons import read_recording

REPLAY = "tests/recordings/examples/one_percent.jsonl"
"""Recorded H200 trials in which head does about 1 % more work."""

WIDTH = 100
"""Columns of the terminal."""

MACHINE, SIZE = "h100-80gb-hbm3x1-fdc21bca", (1200, 800)
"""The machine whose numbers the page shows, and the page's width and height in pixels."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def verdict(root: Path) -> str:
    """What `ridgeline ab --replay` prints about REPLAY, as an SVG that asks for no font of the network."""
    recorded = read_recording(root / REPLAY).comparisons
    report = model.report_of(judge(recorded, policy.load()), [], title="recorded trials")
    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, highlight=False, _environ={})
    console.print(f"$ ridgeline ab --replay {REPLAY}", style="dim")
    terminal.show(report, console)
    drawn = console.export_svg(title="ridgeline", unique_id="ridgeline")
    plain = re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in plain.splitlines()) + "\n"


def page(site: Path, out: Path) -> None:
    """The front page of a site as a PNG; click.ClickException without a site or a browser."""
    index = site.resolve() / "index.html"
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not index.exists() or browser is None:
        said = f"{index} does not exist: `ridgeline site` builds it" if browser else "no Chromium: install `chromium`"
        raise click.ClickException(said)
    window, shot = f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={out.resolve()}"
    drawing = ("--headless", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=20000", window, shot)
    address = f"{index.as_uri()}#machine={MACHINE}"
    done = subprocess.run([browser, *drawing, address], capture_output=True, text=True, check=False, timeout=120)
    if done.returncode or not out.exists():
        raise click.ClickException(f"{browser} took no picture: {done.stderr.strip()[-500:]}")
    with Image.open(out) as picture:  # a page of lines and text: 64 colours take a quarter of the bytes
        picture.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(out, optimize=True)


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--site", type=click.Path(path_type=Path), default=Path("site"), show_default=True, help="A built site.")
def main(folder: Path, site: Path) -> None:
    (folder / "verdict.svg").write_text(verdict(Path(__file__).parents[2]), encoding="utf-8")
    page(site, folder / "page.png")


if __name__ == "__main__":
    main()
