"""`ridgeline ci sift`: of the trials that a machine handed over, those that fit the run that measured them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ci.commands.common import leg
from ci.commands.common.leg import HandedLeg
from ci.git.repository import Repository
from ci.judging import claims
from ci.judging.claims import rejected
from ci.options import ANY, PASS, USAGE, NewFile, full_hash, option, verb
from ci.report.words import plain
from ci.whole_files import replace

HEAD = "344de583" + "0" * 32


@verb(f"ridgeline ci sift incoming --head {HEAD} --pool mi300x --out trials.jsonl")
@click.argument("files", nargs=-1, required=True, type=ANY)
@option("--head SHA", "The commit that was measured.", callback=full_hash, required=True)
@leg.WHERE
@option("--out", "File for the trials that fit.", NewFile(), required=True)
def sift(files: Sequence[Path], head: str, pool: str, gpus: int | None, run: Path | None, job: str, out: Path) -> int:
    """Keep the trials that fit their run: commit, pool, moment; say which do not.  Exit code 3 if any was left out.

    FILES are trial files, or folders of them, from a machine that is not trusted.
    """
    asked = HandedLeg(head, head, pool, gpus, "pr", run, job)
    handed = leg.handed_over(files)
    expected = leg.expected_alone(asked, Repository(Path.cwd()))
    found = claims.sift([trial for file in handed for trial in file.trials], expected)
    replace(out, "".join(f"{trial.text}\n" for trial in found.trials))
    left_out = [*rejected(handed), *map(str, found.refused), *found.gaps]
    for sentence in left_out:
        click.echo(f"left out: {plain(sentence, 2000)}", err=True)
    click.echo(f"{len(found.trials)} trials fit the run, {len(found.refused)} do not")
    return USAGE if left_out or not found.trials else PASS
