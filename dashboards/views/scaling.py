"""Scaling: speed over the number of ranks on machines of one product, and over the number of CUs a collective takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ci.history import kept
from ci.history.kept import CurvePoint
from ci.records import ledger as regimes
from ci.records import sustained
from ci.records.rates import Rate
from ci.records.sustained import BesideRow, JoulesPerCall, RegimeTime
from dashboards.lanes import natural, slug, without_ranks
from dashboards.values import count, headline, in_rate, minute, one, significant
from dashboards.views import CHARTS, Made, SiteInput, View, beside


def scaling_data(rows: pd.DataFrame) -> dict[str, Any]:
    """Points of one product, which static/views/scaling.js reads.  rows: newest of each lane, with ranks and times.

    {"device", "points": [{"kernel", "shape", "case", "world", "per_rank": payload bytes / ranks, "rate", "backend",
    "baseline", "us", "value", "busbw", "machine", "commit", "date"}]}
    """
    newest = rows.sort_values(["date", "machine"], kind="stable")
    points = _points(newest.drop_duplicates(["kernel", "case", "backend"], keep="last"))
    points.sort(key=lambda point: (point["kernel"], natural(point["shape"]), point["backend"], point["world"]))
    return {"device": str(rows["device"].iloc[0]), "points": points}


def _points(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The newest number of each backend in each case, on whichever machine it was measured."""
    found = {name: headline(part) for name, part in rows.groupby(["kernel", "case"], observed=True)}
    quoted = [found[name] for name in zip(rows["kernel"], rows["case"], strict=True)]
    in_each = {rate: significant(in_rate(rows, rate)) for rate in {*quoted, Rate.BUSBW}}
    columns = {
        "kernel": rows["kernel"],
        "shape": [without_ranks(case, int(world)) for case, world in zip(rows["case"], rows["world"], strict=True)],
        "case": rows["case"],
        "world": map(count, rows["world"]),
        "per_rank": significant((rows["payload_bytes"] / rows["world"]).to_numpy(float), 12),
        "rate": [rate.value for rate in quoted],
        "backend": rows["backend"],
        "baseline": map(bool, rows["baseline"]),
        "us": significant(rows["seconds"].to_numpy(float) * 1e6),
        "value": [in_each[rate][n] for n, rate in enumerate(quoted)],
        "busbw": in_each[Rate.BUSBW],
        "machine": rows["machine"],
        "commit": rows["commit"],
        "date": map(minute, rows["date"]),
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def curves_data(points: list[CurvePoint], chosen: dict[tuple[str, str, str, str], int]) -> list[dict[str, Any]]:
    """Curves over CUs: [{"machine", "device", "kernel", "case", "world", "backends": [{"name", "baseline", "chosen",
    "points": [[CUs, busbw in GB/s, commit]]}]}]; chosen: CUs that the newest record uses, where it tells."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for point in points:
        key = (point.machine, point.kernel, point.case)
        facts = {"machine": point.machine, "device": point.device, "kernel": point.kernel, "case": point.case}
        curve = found.setdefault(key, {**facts, "world": point.world, "backends": {}})
        backend = {"name": point.backend, "baseline": point.baseline, "chosen": chosen.get((*key, point.backend))}
        line = curve["backends"].setdefault(point.backend, {**backend, "points": []})
        line["points"].append([point.programs, one(point.busbw), point.commit])
    return [{**curve, "backends": list(curve["backends"].values())} for curve in found.values()]


def chosen_programs(site: SiteInput, points: list[CurvePoint]) -> dict[tuple[str, str, str, str], int]:
    """The knob `programs` in the newest record of each case that has a curve."""
    found: dict[tuple[str, str, str, str], int] = {}
    for machine, kernel, case in sorted({(point.machine, point.kernel, point.case) for point in points}):
        rows = site.frame[(site.frame["machine"] == machine) & (site.frame["kernel"] == kernel)]
        rows = rows[rows["case"] == case].sort_values("date", kind="stable")
        for commit, env in rows[["commit", "env"]].iloc[-1:].itertuples(index=False):
            for trial in site.notes_of(machine, commit, env):
                found |= _knobs(trial, machine, kernel, case)
    return found


def _knobs(trial: Any, machine: str, kernel: str, case: str) -> dict[tuple[str, str, str, str], int]:
    arms = trial.arms() if trial.operator == kernel else ()
    return {
        (machine, kernel, case, backend): int(arm.knobs["programs"])
        for name, _, backend, arm in arms
        if name == case and isinstance(arm.knobs.get("programs"), int)
    }


def _scaling(site: SiteInput) -> Made:
    """Points of measured rows of several ranks by product, whatever the number of its devices; curves over CUs."""
    parts = [rows[(rows["world"] > 1) & (rows["status"] == "ok")] for rows in site.newest.values()]
    rows = pd.concat(parts) if parts else site.frame
    rows = rows[np.isfinite(rows["seconds"].astype(float))] if len(rows) else rows
    products = [scaling_data(part) for _, part in rows.groupby("device", sort=True, observed=True)] if len(rows) else []
    paths = [f"views/scaling-{slug(product['device'])}" for product in products]
    points = kept.curve_points(site.results_dir)[0] if site.results_dir else []
    listed = [{"device": product["device"], "path": path} for product, path in zip(products, paths, strict=True)]
    drawn = curves_data(points, chosen_programs(site, points) if len(site.frame) else {})
    yield "views/scaling", {"products": listed, "curves": drawn}
    for product, path in zip(products, paths, strict=True):
        yield path, product
        yield from beside(path, product["points"])


VIEW = View(
    "scaling",
    "Scaling",
    _scaling,
    scripts=(*CHARTS, "views/scaling.js"),
    styles=("views/views.css", "views/machines.css"),
)


# Sustained calls beside spaced ones: time, ratio to the vendor library in either regime, joules.


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


def _sustained(site: SiteInput) -> Made:
    frame = site.frame if len(site.frame) else None
    found = sustained.beside(site.results_dir, frame) if site.results_dir else ()
    rows = [sustained_row(row) for row in found]
    yield "views/sustained", {"rows": rows}
    yield from beside("views/sustained", rows)


SUSTAINED = View(
    "sustained",
    "Sustained",
    _sustained,
    scripts=("views/sustained.js",),
    styles=("views/views.css",),
    shown=lambda site: bool(site.results_dir) and regimes.folder_of(site.results_dir, regimes.SUSTAINED).is_dir(),
)
