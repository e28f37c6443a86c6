"""Do the collectives keep their promises under every order of memory operations that MI300X and MI355X allow?

    python -m tests.study.memory_order --schedules 200 --kept memory_order.jsonl

Every operator runs under schedules, with seeds 1, 2, 3, ...  Times are CPU seconds.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click

from benchmarks.emulation.cases import SmallCase, small_cases
from benchmarks.emulation.collective import Schedules, world
from benchmarks.emulation.schedule import Hazard
from kernels.registry import discover

OPERATORS = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "gemm_all_scatter")


def variants(ranks: int, arch: str = "gfx942") -> list[SmallCase]:
    """What the operators declare to be executed on so many ranks."""
    kernels = discover().kernels
    cases = small_cases({name: kernels[name] for name in OPERATORS}, [arch], ranks)
    return [small for small in cases if small.case.world == ranks]


def built(variant: SmallCase, arch: str) -> Schedules:
    """The variant on all ranks, its first schedule compared with the reference."""
    kernel = discover().kernels[variant.operator]
    return Schedules(world(kernel, variant.backend, variant.case, arch, dict(variant.knobs)))


def sound_rows(variant: SmallCase, arch: str, schedules: int) -> list[list[str]]:
    """Its row of the table of schedules."""
    begin = time.process_time()
    runs = built(variant, arch)
    spent = time.process_time() - begin
    hazards, executed = list[str](), 0
    for found, instructions, seconds in side_by_side(runs, range(1, schedules + 1)):
        hazards, executed, spent = hazards + found, executed + instructions, spent + seconds
    numbers = [arch, str(variant.case.world), str(schedules), f"{executed:,}", f"{spent:.0f}"]
    return [[variant.operator, variant.backend, variant.name, *numbers, hazards[0] if hazards else "none"]]


def side_by_side(runs: Schedules, seeds: Sequence[int]) -> Iterator[tuple[list[str], int, float]]:
    """(hazards, instructions, CPU s) of shares of the seeds, a forked process on each core."""
    count = len(os.sched_getaffinity(0))
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(count, fork, initializer=_take, initargs=(runs,)) as pool:
        yield from pool.map(_executed, [seeds[n::count] for n in range(count)])


def _take(runs: Schedules) -> None:
    global _runs
    _runs = runs


_runs: Schedules
"""In a forked process."""


def _executed(seeds: Sequence[int]) -> tuple[list[str], int, float]:
    begin, executed = time.process_time(), 0
    hazards: list[str] = []
    for seed in seeds:
        try:
            executed += _runs.run(seed).executed
        except Hazard as hazard:
            hazards.append(str(hazard))
    return hazards, executed, time.process_time() - begin


HEAD = ["operator", "backend", "variant", "target", "ranks", "schedules", "instructions", "CPU s", "hazards"]


@click.command(help=__doc__)
@click.option("--schedules", type=click.IntRange(1), default=200, show_default=True, help="Of each variant or plant.")
@click.option("--ranks", type=click.Choice(["2", "4", "8"]), multiple=True, default=["2", "4", "8"], show_default=True)
@click.option("--arch", type=click.Choice(["gfx942", "gfx950"]), multiple=True, default=["gfx942", "gfx950"])
@click.option("--operator", type=click.Choice(OPERATORS), multiple=True, default=OPERATORS)
@click.option(
    "--kept",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines of what is finished; what is in it is not executed again.",
)
def main(
    schedules: int, ranks: tuple[str, ...], arch: tuple[str, ...], operator: tuple[str, ...], kept: Path | None
) -> None:
    """Print the table, row by row."""
    for row in (HEAD, ["---"] * len(HEAD)):
        click.echo(f"| {' | '.join(row)} |")
    lines = [json.loads(line) for line in kept.read_text("utf-8").splitlines()] if kept and kept.exists() else []
    known = {tuple(line["of"]): line["rows"] for line in lines}
    for count, target in ((int(count), target) for count in ranks for target in arch):
        for variant in (one for one in variants(count) if one.operator in operator):
            of = ("sound", variant.operator, variant.name, target, count, schedules)
            rows = known.get(of)
            if rows is None:
                rows = sound_rows(variant, target, schedules)
                if kept:
                    with kept.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({"of": of, "rows": rows}) + "\n")
            for row in rows:
                click.echo(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
