"""How often a planted slow-down on a CPU is found, and equal code called slower: whole commands, on this machine.

    python -m tests.study.cpu_times --equal 50 --planted 10

makes a repository of one operator and one benchmark script, commits the same code again (a remark), 20 % more work and
twice the work, and compares each with its parent by `ab` and by `adopt`, command by command.  The table goes to
cpu_times.md; what each command said is printed as it comes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click

from ci.whole_files import replace

TABLE = Path(__file__).parent / "cpu_times.md"

LIMIT_S = 60.0
"""What a command may take; how many did is in the table."""

WORK = '''"""The code under test: a reduction over rows, so many times."""
import torch


def mix(x, out):
    for _ in range({times}):
        torch.sum(torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (x.shape[1],))), 1, out=out)
    return out
'''

OPERATOR = '''"""Row sums of a smooth function."""
import torch
from ridgeline.spec import Case, Cost, Kernel, Tolerance

import work

mixed = Kernel("mixed", cases=[Case(f"rows_{n}", tier="pr", rows=n, dtype="fp32") for n in (64, 256, 1024)],
               tolerance=Tolerance(norm=1e-3, peak=1e-2))


@mixed.inputs
def inputs(case, seed):
    return {"x": torch.randn(case.rows, 512)}


@mixed.cost
def cost(case):
    return Cost(flops=10 * case.rows * 512, hbm_bytes=4 * case.rows * 513)


@mixed.reference
def reference(case, inputs):
    return torch.nn.functional.gelu(torch.nn.functional.layer_norm(inputs["x"], (512,))).sum(1)


@mixed.backend("torch")
def plain(case, inputs):
    out = torch.empty(case.rows)
    return lambda: work.mix(inputs["x"], out)
'''

SCRIPT = """import torch
from triton.testing import do_bench

import work

for rows in (64, 256, 1024):
    x, out = torch.randn(rows, 512), torch.empty(rows)
    print(rows, do_bench(lambda: work.mix(x, out)))
"""

CHANGES = {"equal": (10, "remark = 1\n"), "20 % more work": (12, ""), "twice the work": (20, "")}
"""Passes over the data where base has 10, and what else is in the file."""

COMMANDS = {
    "ab": ["ab", "HEAD^", "HEAD", "--no-why", "--json"],
    "adopt": ["adopt", "bench.py", "HEAD^", "HEAD", "--json"],
}


@click.command()
@click.option("--equal", default=50, show_default=True, help="Runs of each command on equal code.")
@click.option("--planted", default=10, show_default=True, help="Runs of each command on each slow-down.")
@click.option("--command", "commands", multiple=True, type=click.Choice(tuple(COMMANDS)), help="Only these.")
def main(equal: int, planted: int, commands: tuple[str, ...]) -> None:
    """Run the commands, the changes in turn, and write the table after each."""
    said: dict[tuple[str, str], list[tuple[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="ridgeline-study-") as folder:
        heads = _repository(Path(folder))
        for number in range(max(equal, planted)):
            for change, head in heads.items():
                for command in commands or COMMANDS:
                    if number < (equal if change == "equal" else planted):
                        said.setdefault((command, change), []).append(_verdict(Path(folder), command, head))
                        click.echo(f"{number + 1} {command}, {change}: {said[command, change][-1]}")
            replace(TABLE, table(said))


def table(said: dict[tuple[str, str], list[tuple[str, float]]]) -> str:
    """What came of the runs, by command and change."""
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[2]
    lines = [
        f"Comparisons on a CPU: {cores} cores, load {load:.1f} in the last quarter of an hour, three cases of 0.3 to",
        "5 ms; made by `python -m tests.study.cpu_times`.",
        "",
        f"| command | change | runs | verdicts | within {LIMIT_S:.0f} s | median s | longest s |",
        "|---|---|---|---|---|---|---|",
    ]
    for (command, change), runs in said.items():
        counts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(one for one, _ in runs).most_common())
        seconds = [took for _, took in runs]
        took = f"{sum(one <= LIMIT_S for one in seconds)} | {statistics.median(seconds):.0f} | {max(seconds):.0f}"
        lines.append(f"| {command} | {change} | {len(runs)} | {counts} | {took} |")
    return "\n".join(lines) + "\n"


def _repository(folder: Path) -> dict[str, str]:
    """Commits by change, each the only child of a base; the working tree is at base."""
    (folder / "perf").mkdir()
    (folder / "perf/__init__.py").write_text("")
    (folder / "perf/mixed.py").write_text(OPERATOR)
    (folder / "bench.py").write_text(SCRIPT)
    (folder / "ridgeline.toml").write_text('kernels = ["perf"]\n')
    (folder / ".gitignore").write_text(".ridgeline/\nresults/\n")
    (folder / "work.py").write_text(WORK.format(times=10))
    _git(folder, "init", "--quiet", "--initial-branch=main")
    base, heads = _commit(folder, "base"), {}
    for change, (times, remark) in CHANGES.items():
        (folder / "work.py").write_text(remark + WORK.format(times=times))
        heads[change] = _commit(folder, change)
        _git(folder, "reset", "--quiet", "--hard", base)
    return heads


def _verdict(folder: Path, command: str, head: str) -> tuple[str, float]:
    """What a command says, and its seconds."""
    words = [head if one == "HEAD" else f"{head}^" if one == "HEAD^" else one for one in COMMANDS[command]]
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "ci", *words], cwd=folder, capture_output=True, text=True, check=False)
    took_s = time.monotonic() - begin
    if done.returncode > 2:
        raise click.ClickException(f"ridgeline {' '.join(words)}: {done.stderr[-2000:]}")
    verdict = json.loads(done.stdout[done.stdout.index("{") :])["verdict"]
    return verdict, took_s


def _commit(folder: Path, message: str) -> str:
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message", message)
    return _git(folder, "rev-parse", "HEAD").strip()


def _git(folder: Path, *words: str) -> str:
    author = {f"GIT_{role}_{key}": "study@example.org" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    done = subprocess.run(["git", *words], cwd=folder, env={**os.environ, **author}, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"git {' '.join(words)}: {done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
