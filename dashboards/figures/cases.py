"""Figures of records: each is a SPEC and its rows, or a picture (`dashboards.figures.studies`), as those of a study."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ci.history.health import MachineHealth
from ci.history.kept import CurvePoint
from ci.history.types import Moved
from ci.records import derived
from ci.records.rates import Rate
from dashboards.figures import paper
from dashboards.figures import spec as columns
from dashboards.figures.kinds import KEYS, picture
from dashboards.figures.picture import FigureError, Marks, Picture, PictureAxis, PicturePanel, numbers
from dashboards.figures.spec import parse
from dashboards.lanes import KEY, commits, natural, redefined, tidy, without_ranks
from dashboards.values import ends_in_rate, headline, in_rate

LABELS = {
    Rate.TFLOPS: "TFLOPS",
    Rate.GBS: "HBM GB/s",
    Rate.ALGBW: "algbw, GB/s",
    Rate.BUSBW: "busbw, GB/s",
    Rate.TIME: "time, µs (less is better)",
}

MOST_CASES = 60
"""Cases of one figure of backends: more lines cannot be read on a page of paper."""


def backends(frame: pd.DataFrame, machine: str | None, kernel: str, path: Path | str) -> Path:
    """The newest time of each backend in each case / that of the case's fastest baseline, with 99 % intervals.

    Where a case has no timed baseline, its fastest backend takes that place.
    """
    rows = _newest(frame, machine, kernel)
    cases = sorted(rows["case"].unique(), key=natural)[:MOST_CASES]
    rows = rows[rows["case"].isin(cases)].assign(least=_yardstick(rows))
    marks = []
    for look in columns.groups(rows, "backend", _baselines(rows)):
        part = columns.within(rows, "backend", look)
        speed, low, high = (numbers(part["least"] / part[name]) for name in ("seconds", "seconds_high", "seconds_low"))
        places = map(cases.index, part["case"])
        marks.append(look.marks("dots", speed, places, low=low, high=high))
    x = PictureAxis("speed / speed of the fastest baseline (more is better)")
    y = PictureAxis("", "category", tuple(cases))
    panel = PicturePanel("", x, y, tuple(marks), upright=False, level=1.0)
    told = _told("bars", kernel, rows)
    return _saved(told, Picture(told["title"], (panel,)), path)


def shapes(frame: pd.DataFrame, machine: str | None, kernel: str, path: Path | str, rate: str | None = None) -> Path:
    """The newest speed of every case over the bytes it must move, one line per backend, with the roof of the device.

    Bytes: payload of a collective, else least HBM traffic.
    """
    rows = _newest(frame, machine, kernel)
    wanted = known_rate(rate) if rate else headline(rows)
    rows = rows.assign(size=rows["payload_bytes"].where(rows["payload_bytes"] > 0, rows["hbm_bytes"]))
    rows = rows[rows["size"] > 0].sort_values(["size", "case"], kind="stable")
    if not len(rows):
        raise FigureError(f"the cases of {kernel} tell no bytes; there is nothing to draw them over")
    moved = "payload" if (rows["payload_bytes"] > 0).any() else "least HBM traffic"
    size = {"column": "size", "label": moved, "unit": "B", "scale": "bytes"}
    rows, speed = _in_rate(rows, wanted)
    told = _told("curve", kernel, rows) | {"x": size, "y": speed, "group": "backend", "baselines": _baselines(rows)}
    kind = "line" if (rows["payload_bytes"] > 0).all() else "dots"  # sizes of one thing; shapes of a GEMM are not
    roof, roofs = rows.drop_duplicates("case"), []
    if wanted is not Rate.TIME and np.isfinite(peak := in_rate(roof, wanted, "roofline_seconds")).any():
        roofs.append(Marks("roofline", kind, numbers(roof["size"]), numbers(peak), dashed=5, hollow=True))
    return _saved(told, _with(picture(parse(told, KEYS), rows), kind, roofs), path)


def _with(made: Picture, kind: str, more: Sequence[Marks] = ()) -> Picture:
    """A picture of one panel whose marks are all of a kind, with more of them."""
    (panel,) = made.panels
    marks = (*(dataclasses.replace(one, kind=kind) for one in panel.marks), *more)
    return dataclasses.replace(made, panels=(dataclasses.replace(panel, marks=marks),))


def roofline(frame: pd.DataFrame, machine: str | None, kernel: str | None, path: Path | str) -> Path:
    """TFLOPS of one device over the intensity of each case (FLOP / HBM byte), under the roofs of the device."""
    rows = _newest(frame, machine, kernel)
    rows = rows[(rows["flops"] > 0) & (rows["hbm_bytes"] > 0)]
    if not len(rows):
        raise FigureError(f"no timed case of {kernel or 'this machine'} has FLOP and bytes; there is nothing to draw")
    hardware, peaks = derived.hardware_of(rows.iloc[-1]), {}
    for dtype in sorted(rows["dtype"].unique()) if hardware else ():
        with contextlib.suppress(ValueError):  # a dtype without matrix units has no roof
            peaks[dtype] = hardware.peak(dtype) / 1e12
    if not hardware or not peaks:
        device = rows.iloc[-1]["device"] or the_machine(rows)
        instead = "`ridgeline plot shapes --kernel NAME --out FILE` draws speeds without one"
        raise FigureError(
            f"a roofline needs the peaks of a device, and {device} has none in kernels/hardware.py; {instead}"
        )
    bandwidth = hardware.hbm_bandwidth / 1e9
    told = _told("roofline", kernel or "all operators", rows) | {
        "group": "backend" if kernel else "kernel",
        "baselines": _baselines(rows) if kernel else [],
        "ceilings": {"peak_tflops": peaks, "hbm_gbs": bandwidth},
    }
    return drawn(told, rows, path)


def curve(frame: pd.DataFrame, machine: str | None, kernel: str, path: Path | str, rate: str = "busbw") -> Path:
    """The newest record of each collective case of a kernel over its payload; one line per backend, dtype and world."""
    wanted = known_rate(rate)
    rows = chosen(frame, machine=machine, kernel=kernel)
    machine = the_machine(rows)
    rows = rows[(rows["payload_bytes"] > 0) & (rows["status"] == "ok")].drop_duplicates(KEY, keep="last")
    if not len(rows):
        raise FigureError(f"{kernel} on {machine} has no measured case with a payload; curves are for collectives")
    line = rows["backend"].astype(str)
    if len(rows[["dtype", "world"]].drop_duplicates()) > 1:
        line += ", " + rows["dtype"].astype(str) + ", " + rows["world"].map("{:.0f} ranks".format)
    rows, speed = _in_rate(rows.assign(line=line), wanted)
    told = _told("curve", kernel, rows) | {"x": "payload_bytes", "y": speed, "group": "line"}
    told |= {"baselines": sorted(line[rows["baseline"]].unique())}
    return _saved(told, _with(picture(parse(told, KEYS), rows), "line"), path)


def scaling(frame: pd.DataFrame, kernel: str, case: str | None, path: Path | str, rate: str | None = None) -> Path:
    """Speed of one problem over the number of ranks, on whichever machines of one product have it.

    case: any of its names; its number of ranks is left out of account.  Default: the problem that takes longest.
    """
    rows = chosen(frame, kernel=kernel)
    rows = rows[(rows["status"] == "ok") & (rows["world"] > 1)]
    worlds = rows["world"].astype(int)
    rows = rows.assign(shape=[without_ranks(name, world) for name, world in zip(rows["case"], worlds, strict=True)])
    rows = rows[rows.groupby("shape")["world"].transform("nunique") > 1]
    if not len(rows):
        raise FigureError(f"no problem of {kernel} was measured with two numbers of ranks")
    wanted_shape = _wanted(rows, case)
    rows = rows[rows["shape"] == wanted_shape].sort_values("date", kind="stable")
    rows = rows.drop_duplicates(["backend", "world"], keep="last")
    told = _told("scaling", f"{kernel} / {wanted_shape}", rows)
    rows, speed = _in_rate(rows, known_rate(rate) if rate else headline(rows))
    return drawn(told | {"y": speed, "group": "backend", "baselines": _baselines(rows)}, rows, path)


def _wanted(rows: pd.DataFrame, case: str | None) -> str:
    if case is None:
        return str(rows.loc[rows["seconds"].astype(float).idxmax(), "shape"])
    found = rows[(rows["case"] == case) | (rows["shape"] == case)]
    if not len(found):
        raise FigureError(f"no record has case {case!r}; there is: {', '.join(sorted(rows['shape'].unique()))}")
    return str(found["shape"].iloc[0])


def programs(points: Iterable[CurvePoint], kernel: str | None, case: str | None, path: Path | str) -> Path:
    """Bus bandwidth of one case over the number of CUs (SMs): points of `ci.history.kept`."""
    all_points = list(points)
    found = [one for one in all_points if kernel in (None, one.kernel) and case in (None, one.case)]
    named = sorted({(one.machine, one.kernel, one.case) for one in found})
    if len(named) != 1:
        there = sorted({f"{one.kernel}/{one.case}" for one in all_points}) or ["nothing"]
        raise FigureError(f"a curve is of one case, {len(named)} were chosen; there is: {', '.join(there)}")
    rows = pd.DataFrame([dataclasses.asdict(one) for one in found]).assign(cus=[one.programs for one in found])
    told = _told("cus", "{1} / {2}".format(*named[0]), rows)
    return drawn(told | {"group": "backend", "baselines": _baselines(rows)}, rows, path)


# ---- over time ------------------------------------------------------------------------------------------------------


def history(
    frame: pd.DataFrame,
    machine: str | None,
    kernel: str,
    case: str,
    path: Path | str,
    rate: str | None = None,
    moved: Sequence[Moved] = (),
) -> Path:
    """Every backend of a case over the commits of a machine, with intervals, and what is 100 % of peak.

    frame: columns of `ci.records.store.load` and `ci.records.derived.derive`.  rate: a value of
    `ci.records.rates.Rate`; default: as the case is quoted.
    The line breaks where the benchmark definition changed or nothing was measured.
    moved: steps of the history; those of this case are marked at their first bad commit.
    """
    rows = chosen(frame, machine=machine, kernel=kernel, case=case)
    machine, wanted = the_machine(rows), known_rate(rate) if rate else headline(rows)
    order = commits(rows)
    dates = ["" if pd.isna(date) else f"{date:%Y-%m-%d} " for date in order["date"]]
    names = tuple(date + commit[:8] for date, commit in zip(dates, order["commit"], strict=True))
    place = {commit: i for i, commit in enumerate(order["commit"])}
    least = np.nanmin([*in_rate(rows, wanted), np.inf])
    marks = []
    for look in columns.groups(rows, "backend", _baselines(rows)):
        marks += _over_commits(columns.within(rows, "backend", look), look, place, wanted, float(least))
    own = [one for one in moved if one.key[:2] == (machine, kernel) and one.key.case == case and one.first_bad in place]
    for n, one in enumerate(sorted(own, key=lambda one: (one.first_bad, one.key.backend))):
        said = f"{one.key.backend}: time {one.step.ratio - 1:+.1%}"
        marks.append(Marks(said, "rule", (place[one.first_bad] - 0.5,), (math.nan,), look=1 + n))
    peaks = in_rate(rows, wanted, "roofline_seconds") if wanted is not Rate.TIME else np.array([])
    peak = next(iter(peaks[np.isfinite(peaks)][::-1]), None)
    said = "" if peak is None else f"100 % of peak: {peak:.4g} {LABELS[wanted]}"
    x, y = PictureAxis("", "category", names), PictureAxis(LABELS[wanted])
    told = _told("curve", f"{kernel} / {case}", rows)
    return _saved(told, Picture(told["title"], (PicturePanel("", x, y, tuple(marks), said=said),)), path)


def _over_commits(
    rows: pd.DataFrame, look: columns.GroupLook, place: dict[str, int], rate: Rate, least: float
) -> Iterator[Marks]:
    """A backend: a line for each benchmark definition, holes left open; a mark where it failed, at the least value."""
    at, ok = np.array([place[commit] for commit in rows["commit"]]), (rows["status"] == "ok").to_numpy()
    starts = at[redefined(rows, np.zeros(len(rows)))]
    values = in_rate(rows, rate), *ends_in_rate(rows, rate)
    if not ok.any():
        look = dataclasses.replace(look, name=f"{look.name}, never measured")
    for part in np.split(np.flatnonzero(ok), np.searchsorted(at[ok], starts)):
        lines = np.full((3, len(place)), np.nan)
        lines[:, at[part]] = [column[part] for column in values]
        values_there, low, high = map(numbers, lines)
        yield look.marks("line", range(len(place)), values_there, low=low, high=high)
    failed = at[~ok & ok.any()]
    if len(failed):
        yield Marks(f"{look.name}, not measured", "dots", numbers(failed), (least,) * len(failed), look=None, dashed=3)
    if len(starts):
        yield Marks("benchmark definition changed", "rule", numbers(starts - 0.5), (math.nan,) * len(starts), dashed=2)


HEALTH = {
    "clock_mhz": ("clock at work", "MHz", 1.0),
    "power_w": ("power at work", "W", 1.0),
    "temperature_c": ("highest temperature", "°C", 1.0),
    "throttled": ("held back", "% of readings", 100.0),
    "noise": ("noise between trials", "%", 100.0),
}
"""Field of a device or a session: label, unit, factor."""


def health(found: Sequence[MachineHealth], machine: str | None, path: Path | str) -> Path:
    """Clock, power, temperature and throttling of each GPU, and the noise of the machine, session by session."""
    if machine is None and len(found) == 1:
        machine = found[0].machine
    one = next((entry for entry in found if entry.machine == machine), None)
    if one is None:
        there = ", ".join(entry.machine for entry in found) or "nothing"
        wrong = "name a machine with --machine" if machine is None else f"no notes are of machine {machine!r}"
        raise FigureError(f"{wrong}; there is: {there}")
    rows: list[dict[str, Any]] = []
    for number, session in enumerate(one.sessions, start=1):
        at = {"session": number}
        rows.append({**at, "gpu": "machine", "noise": session.noise})
        for n, device in enumerate(session.devices):
            rows.append({**at, "gpu": f"GPU {n}"} | {name: getattr(device, name, None) for name in HEALTH})
    data = pd.DataFrame(rows, columns=["session", "gpu", *HEALTH])
    shown = [name for name in HEALTH if data[name].notna().any()]
    data = data.assign(**{name: data[name].astype(float) * HEALTH[name][2] for name in shown})
    days = [datetime.datetime.fromtimestamp(one.sessions[n].at_ms / 1000, datetime.UTC) for n in (0, -1)]
    label = f"session, {days[0]:%Y-%m-%d} to {days[1]:%Y-%m-%d}"
    told = {
        "kind": "panels",
        "title": f"{one.machine}, {one.product}",
        "foot": {"machine": one.machine, "versions": None, "commit": one.sessions[-1].commit[:8]},
        "x": {"column": "session", "label": label, "unit": "1"},
        "group": "gpu",
        "panels": [{"y": {"column": name, "label": HEALTH[name][0], "unit": HEALTH[name][1]}} for name in shown],
    }
    made = picture(parse(told, KEYS), data)
    panels = [dataclasses.replace(one, y=dataclasses.replace(one.y, zero="%" in one.y.title)) for one in made.panels]
    return _saved(told, dataclasses.replace(made, panels=tuple(panels), notes=()), path)


# ---- what all of them share -----------------------------------------------------------------------------------------


def _newest(frame: pd.DataFrame, machine: str | None, kernel: str | None) -> pd.DataFrame:
    """The newest timed row of every case and backend of one machine."""
    rows = chosen(frame, kernel=kernel, machine=machine)
    machine = the_machine(rows)
    timed = rows[(rows["status"] == "ok") & (rows["seconds"] > 0)]
    if not len(timed):
        raise FigureError(f"{kernel or 'nothing'} on {machine} has no timed case")
    return timed.drop_duplicates(KEY, keep="last")


def _yardstick(rows: pd.DataFrame) -> pd.Series:
    """Seconds of the fastest baseline of each row's case, else of its fastest backend."""
    baseline = rows["seconds"].where(rows["baseline"]).groupby(rows["case"]).transform("min")
    return baseline.fillna(rows.groupby("case")["seconds"].transform("min"))


def _baselines(rows: pd.DataFrame) -> list[str]:
    return sorted(rows.loc[rows["baseline"], "backend"].unique())


def _in_rate(rows: pd.DataFrame, rate: Rate) -> tuple[pd.DataFrame, dict[str, str]]:
    """Rows with their speed and its interval, and the quantity that these columns are."""
    low, high = ends_in_rate(rows, rate)
    column = "us" if rate is Rate.TIME else str(rate)
    quantity = {"column": column, "low": "low", "high": "high"}
    return rows.assign(**{column: in_rate(rows, rate), "low": low, "high": high}), quantity


def _told(kind: str, what: str, rows: pd.DataFrame) -> dict[str, Any]:
    """What the SPEC of every kind says: its title, and where the rows are from."""
    newest = rows.iloc[-1]
    where = newest["machine"] if rows["machine"].nunique() == 1 else newest["device"]
    facts = {"machine": where, "versions": newest.get("env"), "commit": str(newest["commit"])[:8]}
    return {"kind": kind, "title": f"{what} on {where}", "foot": facts}


def drawn(told: Mapping[str, Any], rows: pd.DataFrame, path: Path | str) -> Path:
    """Draw a SPEC and its rows into a file."""
    return _saved(told, picture(parse(told, KEYS), rows), path)


def _saved(told: Mapping[str, Any], made: Picture, path: Path | str) -> Path:
    with paper.style():
        return paper.save(paper.draw(parse(told, KEYS), made), path)


def chosen(frame: pd.DataFrame, **wanted: str | None) -> pd.DataFrame:
    """Tidy rows whose columns have these values (None: any); FigureError lists what there is if that is not there."""
    rows = tidy(frame)
    for column, value in wanted.items():
        if value is None:
            continue
        found = rows[rows[column] == value]
        if not len(found):
            present = ", ".join(sorted(rows[column].astype(str).unique())) or "nothing"
            raise FigureError(f"no record has {column} {value!r}; there is: {present}")
        rows = found
    return rows


def the_machine(rows: pd.DataFrame) -> str:
    """The machine of rows; FigureError where they are of several and none was named."""
    names = sorted(rows["machine"].unique())
    if len(names) != 1:
        raise FigureError(f"these records are of {len(names)} machines; name one with --machine: {', '.join(names)}")
    return str(names[0])


def known_rate(rate: str) -> Rate:
    """A rate by its name."""
    try:
        return Rate(rate)
    except ValueError:
        raise FigureError(f"the rate {rate!r} is not known; choose one of {', '.join(LABELS)}") from None
