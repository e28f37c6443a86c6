"""Declared experiments: every Study in a module of `declared` (ci/studies/types.py)."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from ci.studies import declared
from ci.studies.types import Study, StudyError


@functools.cache
def studies() -> dict[str, Study]:
    """Every declared study by its name, in the order of names."""
    names = [f"{declared.__name__}.{module.name}" for module in pkgutil.iter_modules(declared.__path__)]
    modules = [importlib.import_module(name) for name in names]
    every = [value for module in modules for value in vars(module).values() if isinstance(value, Study)]
    return {study.name: study for study in sorted(every, key=lambda study: study.name)}


def study_named(name: str) -> Study:
    """The study of that name; StudyError lists those there are."""
    if name not in studies():
        raise StudyError(f"no study {name!r}; there are: {', '.join(studies())}")
    return studies()[name]
