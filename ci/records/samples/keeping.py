"""Trials without their samples and back: samples go to a place, trials come back whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from ci.records.samples import parts
from ci.records.samples.places import SamplesPlace, configured
from ci.trials.compact import Altered, compacted, restored
from ci.trials.file import RecordError
from ci.trials.trial import Trial


def kept(trials: Sequence[Trial], place: SamplesPlace | None) -> list[Trial]:
    """The trials with their samples at the place; as they are where there is none.  Raises RecordError.

    Samples are written before anything refers to them.
    """
    full = [trial for trial in trials if trial.samples is None]
    if place is None or not full:
        return list(trials)
    paths = {trial.id: parts.path_of(trial) for trial in full}
    place.put({paths[trial.id]: parts.written(parts.table([trial])) for trial in full})
    return [compacted(trial, paths[trial.id]) if trial.samples is None else trial for trial in trials]


def whole(trials: Sequence[Trial], place: SamplesPlace | None) -> list[Trial]:
    """The trials with their samples.  Raises RecordError where they cannot be had."""
    away = [trial for trial in trials if trial.samples]
    if not away:
        return list(trials)
    if place is None:
        raise RecordError(
            f"the samples of trial {away[0].id} are at {_path(away[0])} of a place that is not named here; "
            'name it in pyproject.toml: [tool.ridgeline] samples = "branch:NAME", a folder or a URI'
        )
    by_path: dict[str, list[Trial]] = {}
    for trial in away:
        by_path.setdefault(_path(trial), []).append(trial)
    back = {trial.id: trial for path, those in by_path.items() for trial in _of_part(path, those, place)}
    return [back.get(trial.id, trial) for trial in trials]


def whole_in(trials: Sequence[Trial], results_dir: Path) -> list[Trial]:
    """The same, from the place of the project around a results folder."""
    return whole(trials, configured(results_dir) if any(trial.samples for trial in trials) else None)


def _of_part(path: str, trials: Sequence[Trial], place: SamplesPlace) -> list[Trial]:
    content = place.get(path)
    try:
        found = parts.read(content, [trial.id for trial in trials])
        return [restored(trial, found.get(trial.id, ())) for trial in trials]
    except (pa.ArrowException, OSError, KeyError) as error:
        raise RecordError(f"{path} in {place.name} is damaged ({error}); bring back the file from a copy") from error
    except Altered as error:
        raise RecordError(f"{error} ({place.name}); bring back the file from a copy") from error


def _path(trial: Trial) -> str:
    return trial.samples.path if trial.samples else ""
