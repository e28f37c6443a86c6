"""Declared experiments: every module here but `types` holds one `STUDY` (benchmarks/studies/types.py)."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from benchmarks.studies.types import Study, StudyError


@functools.cache
def studies() -> dict[str, Study]:
    """Every declared study by its name, in the order of names."""
    names = sorted(one.name for one in pkgutil.iter_modules(__path__) if one.name != "types")
    found = [importlib.import_module(f"{__name__}.{name}").STUDY for name in names]
    return {study.name: study for study in sorted(found, key=lambda one: str(one.name))}


def study(name: str) -> Study:
    """The study of that name; StudyError lists those there are."""
    if name not in studies():
        raise StudyError(f"no study {name!r}; there are: {', '.join(studies())}")
    return studies()[name]
