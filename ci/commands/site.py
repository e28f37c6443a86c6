"""`ridgeline site`: build the dashboard, and serve it on request."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ci.harness import MeasureError, draw, follow, options, program, run_here
from ci.options import DRY_RUN, FILE, NO_VERDICT, PASS, RESULTS, Given, err_console, folder, is_missing, option, verb


@verb("ridgeline site --out site")
@folder("--out", "site", "Folder to build.")
@option("--repo-url URL", "Where commits link to (default: the repository of the workflow run).")
@option("--serve PORT", "Serve it on this machine's PORT until Ctrl-C.", click.IntRange(1, 65535))
@RESULTS
@DRY_RUN
def site(given: Given) -> int:
    """Build the dashboard from the records: a folder that works offline.

    Exit codes: 0 built, 2 built without records that cannot be read, 3 not built.
    """
    if given.dry_run:
        click.echo(f"would build {given.out} from {given.results}")
        return 0
    if is_missing(given.results):
        raise MeasureError(
            f"{given.results} is not a folder of records, and {given.out} stays as it is: `ridgeline run` records this "
            "commit in the project's results, `--results DIRECTORY` names others"
        )
    whole = build_site(given.out, given.results, given.repo_url)
    click.echo(given.out / "index.html")
    if given.serve is not None:
        click.echo(f"http://127.0.0.1:{given.serve}/ until Ctrl-C", err=True)
        folder = str(given.out.resolve())
        run_here("http.server", str(given.serve), "--bind", "127.0.0.1", "--directory", folder)
    return PASS if whole else NO_VERDICT


def build_site(out: Path, results: Path, repo_url: str | None = None) -> bool:
    """Build it in a process of its own: judging needs no plotting library.  Whether it has all that is recorded."""
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    url = repo_url or (f"{server}/{name}" if server and name else None)
    argv = program("dashboards") + options(results=results.resolve(), out=out.resolve())
    argv += options(repo_url=url)
    ended = follow(argv, err_console(), "building the site", stdout=False)
    if ended.code not in (PASS, NO_VERDICT):
        raise MeasureError(f"the site was not built ({ended.how}); what was there is as before")
    return ended.code == PASS


# `ridgeline plot`: a figure of the records for a comment or a paper.


FIGURES = ("history", "shapes", "roofline", "scaling", "machine", "sweep")
FORMATS = (".png", ".svg", ".pdf")

EXAMPLES = """ridgeline plot shapes --kernel gemm --machine h200x1-537ca5d2 --out gemm.png
  ridgeline plot machine --machine h200x4-b112377d --out machine.png
  ridgeline plot sweep --kernel gemm --out sweep.svg"""


@verb(EXAMPLES)
@click.argument("what", type=click.Choice(FIGURES))
@option("--machine NAME", "Of this machine (default: the only one that has it).")
@option("--kernel NAME", "Of this operator.")
@option("--case NAME", "Of this case.")
@option("--out", ".png, .svg or .pdf", FILE, required=True)
@RESULTS
@DRY_RUN
def plot(given: Given) -> int:
    """Draw a chart of the pages as a picture; the same records give the same file.

    history: a case over the commits.  shapes: speed of all backends over the size of a case or the payload of a
    collective.  roofline: all cases under the roofs.  scaling: over the number of ranks.  machine: its GPUs over time.
    sweep: the points of an operator's newest recorded sweep beside their anchor (`ridgeline study` draws those of
    studies).
    """
    what, out, results = given.what, given.out, given.results
    if out.suffix.lower() not in FORMATS:
        raise click.BadParameter(
            f"{str(out)!r} ends in {out.suffix!r}; allowed are {', '.join(FORMATS)}", param_hint="--out"
        )
    if given.dry_run:
        click.echo(f"would draw {what} from {results} into {out}")
        return PASS
    chosen = {name: getattr(given, name) for name in ("machine", "kernel", "case")}
    draw(
        err_console(),
        f"drawing {what}",
        "dashboards.figures",
        what,
        **chosen,
        results=results.resolve(),
        out=out.resolve(),
    )
    click.echo(out)
    return PASS
