"""Knobs: the tables of tuned ones, the candidates of a sweep, and all knobs of one launch."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kernels.spec import Backend, Case

OLD_NAMES = {"way": "algorithm"}
"""Knobs by the names that tables written before 2026-12 have for them."""


def read_tuned(config_file: str) -> dict[str, Any]:
    """The tables of tuned.toml beside a config.py, by arch and case; knobs by the names they have now.

    They hold what we have measured and nothing else; points of others belong into published.toml.
    """
    return _renamed(tomllib.loads(Path(config_file).with_name("tuned.toml").read_text()))


def _renamed(table: Mapping[str, Any]) -> dict[str, Any]:
    return {OLD_NAMES.get(k, k): _renamed(value) if isinstance(value, dict) else value for k, value in table.items()}


def first_then(chosen: dict[str, Any], others: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The present choice, then the others, without repeats."""
    found = [chosen]
    for knobs in others:
        if knobs not in found:
            found.append(knobs)
    return found


def all_knobs(backend: Backend, case: Case, arch: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """All knobs of a launch: the backend's defaults, then those of config(), then the overrides."""
    return {**(backend.build.__kwdefaults__ or {}), **backend.knobs(case, arch, overrides)}
