"""Scaling: speed over the number of ranks on machines of one product, and over the number of CUs a collective takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ci.history.kept import curves
from ci.history.kept.curves import CurvePoint
from ci.records.rates import Rate, headline
from dashboards.lanes import natural, slug
from dashboards.values import costs, count, different, in_rate, minute, one, significant
from dashboards.views import SiteInput, View
from dashboards.views.beside import beside


def shape_of(case: str, world: int) -> str:
    """The name of a case without its number of ranks: "w4_fp16_64MB" is "fp16_64MB" with 4 ranks."""
    kept = [part for part in case.split("_") if part != f"w{world}"]
    return "_".join(kept) or case


def scaling_data(rows: pd.DataFrame) -> dict[str, Any]:
    """Points of one product, which static/views/scaling.js reads.  rows: newest of each lane, with ranks and times.

    {"device", "points": [{"kernel", "shape", "case", "world", "per_rank": payload bytes / ranks, "rate", "backend",
    "baseline", "us", "value", "busbw", "machine", "commit", "date"}]}
    """
    points = [point for _, part in rows.groupby(["kernel", "case"], sort=True) for point in _points(part)]
    points.sort(key=lambda point: (point["kernel"], natural(point["shape"]), point["backend"], point["world"]))
    return {"device": str(rows["device"].iloc[0]), "points": points}


def _points(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Of one case: the newest number of each backend, on whichever machine it was measured."""
    newest = rows.sort_values(["date", "machine"], kind="stable").drop_duplicates("backend", keep="last")
    rate = headline(different(costs(newest))[-1])
    columns = {
        "kernel": newest["kernel"],
        "shape": [shape_of(case, int(world)) for case, world in zip(newest["case"], newest["world"], strict=True)],
        "case": newest["case"],
        "world": map(count, newest["world"]),
        "per_rank": significant((newest["payload_bytes"] / newest["world"]).to_numpy(float), 12),
        "rate": [rate.value] * len(newest),
        "backend": newest["backend"],
        "baseline": map(bool, newest["baseline"]),
        "us": significant(newest["seconds"].to_numpy(float) * 1e6),
        "value": significant(in_rate(newest, rate)),
        "busbw": significant(in_rate(newest, Rate.BUSBW)),
        "machine": newest["machine"],
        "commit": newest["commit"],
        "date": map(minute, newest["date"]),
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


def _of_products(site: SiteInput) -> Iterator[tuple[str, pd.DataFrame]]:
    """Measured rows of several ranks by product, whatever the number of its devices."""
    parts = [rows[(rows["world"] > 1) & (rows["status"] == "ok")] for rows in site.newest.values()]
    rows = pd.concat(parts) if parts else site.frame
    rows = rows[np.isfinite(rows["seconds"].astype(float))] if len(rows) else rows
    for device, part in rows.groupby("device", sort=True) if len(rows) else ():
        yield str(device), part


def _data(site: SiteInput) -> Iterator[tuple[str, Any]]:
    products = list(_of_products(site))
    points = curves.load(site.results_dir)[0] if site.results_dir else []
    yield (
        "views/scaling",
        {
            "products": [{"device": device, "path": f"views/scaling-{slug(device)}"} for device, _ in products],
            "curves": curves_data(points, chosen_programs(site, points) if len(site.frame) else {}),
        },
    )
    for device, rows in products:
        yield f"views/scaling-{slug(device)}", scaling_data(rows)


def _files(site: SiteInput) -> Iterator[tuple[str, bytes]]:
    for device, rows in _of_products(site):
        yield from beside(f"views/scaling-{slug(device)}", scaling_data(rows)["points"])


VIEW = View(
    "scaling",
    "Scaling",
    scripts=("numbers.js", "echarts/charts.min.js", "views/plot.js", "views/page.js", "views/scaling.js"),
    styles=("views/views.css", "views/machines.css"),
    data=_data,
    files=_files,
)
