"""The files of a lane: its history in blocks of commits, of which only new ones are made, and what is newest in it."""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from ci.records.frame import RecordPlace
from dashboards import overview, past_file
from dashboards.columns import columns
from dashboards.draft import Draft, File
from dashboards.kernel_page import kernel_block, kernel_head
from dashboards.lanes import BLOCK, Lane, slug
from dashboards.paired_block import paired_block
from dashboards.recent import and_then
from dashboards.script import receive, script_json
from dashboards.sources import LaneSource
from dashboards.views.beside import as_csv, beside, csv_lines

T = TypeVar("T")


def read_lane(source: LaneSource, draft: Draft, code: str, kept: Path | None) -> tuple[Lane, str]:
    """Make the files of the blocks that do not stand, and read as much as says what is newest; a digest of it all.

    code: digest of the code that makes the files.  kept: folder for what lasts of full blocks, None to keep nothing.
    """
    blocks, folder = source.blocks(BLOCK), source.slug
    made_of = [source.rows.made_of(block) for block in blocks]
    chain, file = chain_of_blocks(code, made_of), kept / f"{folder}.arrow" if kept else None
    full = sum(map(is_full, blocks))
    count, past = past_file.load(file, chain[: full + 1])
    for n, places in enumerate(blocks):
        rows = functools.cache(functools.partial(source.rows.rows, places))
        draft.part(f"{folder}/{n}", chain_of(code, made_of[n]), functools.partial(_block, f"{folder}/{n}", rows))
        if n >= count:
            past = and_then(past, rows(), lasting_only=n < full)
        if n >= count and n + 1 == full:
            past_file.save(file, chain[full], past)
    assert past is not None, "a lane has rows"
    return Lane(source.machine, source.env, past.rows, past.counts), chain[-1]


def is_full(block: Sequence[RecordPlace]) -> bool:
    """Whether no commit comes to a block any more, as long as the history only grows."""
    return len({place.commit for place in block}) == BLOCK


def chain_of_blocks(code: str, made_of: Sequence[str]) -> list[str]:
    """Digest of the first 0, 1, ... blocks."""
    found = [chain_of(code, "")]
    for one in made_of:
        found.append(chain_of(found[-1], one))
    return found


def chain_of(before: str, more: str) -> str:
    """Digest of two."""
    return hashlib.sha256(f"{before} {more}".encode(errors="surrogatepass")).hexdigest()[:32]


def _block(path: str, rows: functools._lru_cache_wrapper[pd.DataFrame]) -> Iterator[File]:
    """The files of each kernel in a block, and what was timed in turn there."""
    yield f"data/{path}/paired.js", receive(f"{path}/paired", script_json(paired_block(rows())))
    for part in columns(rows()).parts("kernel"):
        content = script_json(kernel_block(part))
        name = f"{path}/kernel-{slug(part.texts['kernel'].at(0))}"
        yield f"data/{name}.js", receive(name, content)
        yield f"data/{name}.json", content + b"\n"


def newest_files(lane: Lane, shown: dict[str, Any], broken: Sequence[Any], paths: Sequence[str]) -> Iterator[File]:
    """What is newest in a lane: the overview, and the head of every kernel.

    shown: the overview (`dashboards.overview.overview_data`); paths: of all data files that there are.
    """
    path, numbers = f"{lane.slug}/overview", overview.newest(lane.columns)
    yield f"data/{path}.js", receive(path, script_json(shown | {"broken": broken}))
    yield from beside(path, numbers)
    csv_head, *lines = csv_lines(numbers)
    blocks, listed = _by_kernel(lane, paths), _grouped((row["kernel"] for row in numbers), lines)
    rows = _grouped((row["kernel"] for row in shown["rows"]), shown["rows"])
    for part in lane.columns.parts("kernel"):
        kernel = part.texts["kernel"].at(0)
        head = kernel_head(part, blocks[slug(kernel)], shown["commits"], rows.get(kernel, []))
        content, name = script_json(head), f"{lane.slug}/kernel-{slug(kernel)}"
        yield f"data/{name}.js", receive(name, content)
        yield f"data/{name}.json", content + b"\n"
        yield f"data/{name}.csv", as_csv([csv_head, *listed[kernel]])


def _grouped(kernels: Iterable[str], values: Iterable[T]) -> Mapping[str, list[T]]:
    """The values of each kernel."""
    found: dict[str, list[T]] = defaultdict(list)
    for kernel, value in zip(kernels, values, strict=True):
        found[kernel].append(value)
    return found


def _by_kernel(lane: Lane, paths: Sequence[str]) -> dict[str, list[str]]:
    """Paths of the blocks of each kernel, by its slug, oldest first."""
    start, found = f"data/{lane.slug}/", dict[str, list[tuple[int, str]]]()
    for path in paths:
        block, _, name = path.removeprefix(start).partition("/kernel-")
        if path.startswith(start) and block.isdecimal() and name.endswith(".js"):
            found.setdefault(name.removesuffix(".js"), []).append((int(block), path[len("data/") : -len(".js")]))
    return {kernel: [path for _, path in sorted(those)] for kernel, those in found.items()}
