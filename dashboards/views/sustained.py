"""Sustained calls beside spaced ones: time, ratio to the vendor library in either regime, joules."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from ci.records.ledger import SUSTAINED, folder_of
from ci.records.sustained import BesideRow, JoulesPerCall, RegimeTime, beside
from dashboards.values import one
from dashboards.views import SiteInput, View
from dashboards.views import beside as files_beside


def sustained_row(row: BesideRow) -> dict[str, Any]:
    """A row of the table, which static/views/sustained.js reads; times in microseconds, null where there is none."""
    return {
        "machine": row.machine,
        "kernel": row.kernel,
        "case": row.case,
        "backend": row.backend,
        "baseline": row.baseline,
        "commit": row.sustained.commit,
        "spaced_commit": row.spaced.commit if row.spaced else "",
        **_time("spaced", row.spaced),
        **_time("sustained", row.sustained),
        **_joules(row.joules),
    }


def _time(regime: str, time: RegimeTime | None) -> dict[str, float | None]:
    us = None if time is None else one(1e6 * time.seconds)
    numbers = {name: _known(getattr(time, name, None)) for name in ("ratio", "low", "high")}
    return {f"{regime}_us": us, **{f"{regime}_{name}": value for name, value in numbers.items()}}


def _joules(found: JoulesPerCall | None) -> dict[str, float | None]:
    names = {"joules": "joules", "joules_low": "low", "joules_high": "high"}
    return {name: _known(getattr(found, field, None)) for name, field in names.items()}


def _known(value: float | None) -> float | None:
    return None if value is None or value != value else one(value)


def _shown(site: SiteInput) -> bool:
    """Only a site of records that have sustained times has this page."""
    return site.results_dir is not None and folder_of(site.results_dir, SUSTAINED).is_dir()


@functools.lru_cache(maxsize=1)  # the page and its files are made of the same
def _rows(site: SiteInput) -> list[dict[str, Any]]:
    if site.results_dir is None:
        return []
    return [sustained_row(row) for row in beside(site.results_dir, site.frame if len(site.frame) else None)]


def _data(site: SiteInput) -> Iterator[tuple[str, Any]]:
    yield "views/sustained", {"rows": _rows(site)}


def _files(site: SiteInput) -> Iterator[tuple[str, bytes]]:
    yield from files_beside.beside("views/sustained", _rows(site))


VIEW = View(
    "sustained",
    "Sustained",
    scripts=("views/page.js", "views/sustained.js"),
    styles=("views/views.css",),
    shown=_shown,
    data=_data,
    files=_files,
)
