"""Detection over all tracks, and what of it the next call need not do again.

Kept is the answer for each track that was seen, under a checksum of its values: a record of one machine or of one
operator costs the detection of its own series only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ci.history.steps.series import IntArray, Tracks
from ci.stats import steps as detector
from ci.stats.types import FloatArray, Step

TOGETHER = 8192
"""Tracks in one piece of work at most: of 512 to 8192 the fastest (350 points, two cores, 2026-11-22)."""

FEW = 512
"""Tracks that are done before one more thread is of use."""

UNUSABLE = (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError)
"""What reading a damaged file raises."""

FIELDS = tuple(field.name for field in dataclasses.fields(Step))


def found(tracks: Tracks, kept: Path | None = None) -> list[list[Step]]:
    """The steps of each track.  kept: a folder for the answers; one that cannot be used only costs time."""
    arrays = tracks.arrays()
    if kept is None:
        return _detected(arrays)
    sums = checksums(tracks)
    known = _read(kept / "steps.npz")
    new = np.flatnonzero(~np.isin(sums, known.sums))
    for number, steps in zip(new, _detected([arrays[number] for number in new]), strict=True):
        known.answers[int(sums[number])] = steps
    if len(new) or len(known.sums) > len(sums):
        _write(kept, np.unique(sums), known.answers)
    return [known.answers.get(int(one), []) for one in sums]


def checksums(tracks: Tracks) -> IntArray:
    """One number of 64 bits for the values of each track, in their order; shape (tracks,)."""
    found = np.zeros(len(tracks.keys), np.uint64)
    for first in range(0, len(found), FEW):
        found[first : first + FEW] = _checksums(tracks.values, tracks.starts[first : first + FEW + 1])
    return found.view(np.int64)


def _checksums(values: FloatArray, starts: IntArray) -> npt.NDArray[np.uint64]:
    bits = values[starts[0] : starts[-1]].view(np.uint64)
    place = (np.arange(starts[0], starts[-1]) - np.repeat(starts[:-1], np.diff(starts))).astype(np.uint64)
    mixed = (bits ^ (bits >> np.uint64(31))) * (np.uint64(2) * place + np.uint64(0x9E3779B97F4A7C15))
    mixed ^= mixed >> np.uint64(29)
    summed = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    return np.asarray(np.diff(summed[starts - starts[0]]))


def _detected(arrays: Sequence[FloatArray]) -> list[list[Step]]:
    """numpy lets go of the interpreter in long loops, so two threads are faster than one."""
    if len(arrays) < FEW:
        return detector.find_many(arrays)
    threads = min(os.cpu_count() or 1, len(arrays) // FEW)
    size = -(-len(arrays) // (threads * -(-len(arrays) // (threads * TOGETHER))))
    pieces = [arrays[at : at + size] for at in range(0, len(arrays), size)]
    with ThreadPoolExecutor(threads) as pool:
        return [steps for piece in pool.map(detector.find_many, pieces) for steps in piece]


@dataclasses.dataclass(frozen=True)
class _Kept:
    """sums: checksums of tracks whose answer is known; answers: of those that have steps."""

    sums: IntArray
    answers: dict[int, list[Step]]


def _read(path: Path) -> _Kept:
    """What an earlier call kept; nothing if there is none, it is damaged or another detector made it."""
    with contextlib.suppress(*UNUSABLE), np.load(path, allow_pickle=False) as file:
        if str(file["made_by"]) == made_by():
            answers: dict[int, list[Step]] = {}
            for owner, index, row in zip(file["owner"], file["index"], file["rest"], strict=True):
                answers.setdefault(int(owner), []).append(Step(int(index), *map(float, row)))
            return _Kept(file["sums"].astype(np.int64), answers)
    return _Kept(np.zeros(0, np.int64), {})


def _write(folder: Path, sums: IntArray, answers: dict[int, list[Step]]) -> None:
    rows = [(int(one), step) for one in sums for step in answers.get(int(one), ())]
    rest = np.array([[getattr(step, name) for name in FIELDS[1:]] for _, step in rows], np.float64)
    replaced(
        folder / "steps.npz",
        made_by=np.array(made_by()),
        sums=sums,
        owner=np.array([one for one, _ in rows], np.int64),
        index=np.array([step.index for _, step in rows], np.int64),
        rest=rest.reshape(len(rows), len(FIELDS) - 1),
    )


def replaced(path: Path, **arrays: npt.NDArray[np.generic]) -> None:
    """Put arrays into a file, as a whole or not at all; a folder that cannot be written only costs time."""
    draft = path.parent / f".{path.stem}.{os.getpid()}.npz"
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(draft, allow_pickle=False, **arrays)
        draft.replace(path)


@functools.cache
def made_by() -> str:
    """A digest of the detector's own text: another detector has other answers."""
    folder = Path(detector.__file__).parent
    texts = [path.read_bytes() for path in (*sorted(folder.glob("steps*.py")), folder / "types.py")]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()
