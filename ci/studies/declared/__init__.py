"""Declared experiments: every Study in a module of this folder (ci/studies/frame.py)."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from ci.studies.frame import Study, StudyError


@functools.cache
def studies() -> dict[str, Study]:
    """Every declared study by its name, in the order of names."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    every = [value for module in modules for value in vars(module).values() if isinstance(value, Study)]
    return {study.name: study for study in sorted(every, key=lambda study: study.name)}


def study_named(name: str) -> Study:
    """The study of that name; StudyError lists those there are."""
    if name not in studies():
        raise StudyError(f"no study {name!r}; there are: {', '.join(studies())}")
    return studies()[name]
