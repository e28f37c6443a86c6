"""Made-up studies: for every kind of figure a spec and data, and data that are hard to draw."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dashboards.figures import studies as command

FOOT = {"machine": "1 × H200 (h200x1-537ca5d2)", "versions": "Triton 3.6.0, torch 2.11.0+cu129", "commit": "0ff36f1b"}
LONG = "llm_down_m4096_n14336_k4096_fp16_unbalanced_routing_with_a_name_that_does_not_end_soon_" * 2
PUBLISHED = {
    "source": "example.org/table",
    "device": "MI300X",
    "method": "graph, hot",
    "date": "2025-11",
    "unit": "TFLOPS",
}

Made = tuple[dict[str, Any], pd.DataFrame]


def spec(kind: str, title: str, **keys: Any) -> dict[str, Any]:
    return {"kind": kind, "title": title, "foot": {**FOOT, "date": "2026-11-22", "regime": "spaced"}, **keys}


def curve(backends: int = 3, points: int = 11) -> Made:
    rows = [
        {"M": m, "backend": name, "tflops": (t := 700 * m / (m + 150 + 40 * n)), "low": 0.97 * t, "high": 1.03 * t}
        for n, name in enumerate(["cublas", "triton", "gluon", *(f"variant_{k}" for k in range(20))][:backends])
        for m in [2**k for k in range(points)]
    ]
    published = [{**PUBLISHED, "x": m, "y": 500 * m / (m + 300)} for m in (16, 128, 1024)]
    published.append({**PUBLISHED, "label": "peak of a source", "x": None, "y": 650})
    y = {"column": "tflops", "label": "speed", "unit": "TFLOPS", "low": "low", "high": "high"}
    keys = {"x": "M", "y": y, "group": "backend", "baselines": ["cublas"], "published": published}
    return spec("curve", "GEMM llm_down: speed over M", **keys), pd.DataFrame(rows)


def panels() -> Made:
    rows = [
        {"case": f"llm_{case}", "M": m, "tile": tile, "us": 10 * n + m * (1 + abs(math.log2(m / int(tile)))) / 9}
        for n, case in enumerate(("up", "down", "qkv"))
        for m in (16, 64, 256, 1024)
        for tile in ("16", "64", "256")
    ]
    return spec("panels", "Tiles over M, by shape", x="M", y="us", group="tile", by="case"), pd.DataFrame(rows)


def three_panels() -> Made:
    rows = [
        {"tile": f"{m}x{n}", "stages": s, "group": g, "ratio": 0.8 + abs(m - 128) / 300 + abs(s - 3) / 9 + 0.02 * g}
        for m, n, s, g in itertools.product((64, 128, 256), (64, 128), (2, 3, 4), (1, 4, 8))
    ]
    listed = [
        {"title": "tile", "x": {"column": "tile", "label": "tile", "unit": "1", "scale": "category"}},
        {"title": "stages", "x": {"column": "stages", "label": "stages", "unit": "1"}},
        {"title": "group", "x": {"column": "group", "label": "group of tiles", "unit": "1"}},
    ]
    return spec("panels", "One knob at a time", y="ratio", panels=listed), pd.DataFrame(rows)


def cus() -> Made:
    rows = [
        {"cus": n, "backend": name, "busbw": top * n / (n + half), "size": size}
        for name, top, half in (("rccl", 310, 12), ("triton", 330, 20), ("gluon", 335, 15))
        for size in ("1 MiB", "64 MiB", "1 GiB")
        for n in (4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128)
    ]
    found = spec("cus", "all_gather over CUs", group="backend", baselines=["rccl"], by="size")
    return found, pd.DataFrame(rows)


def scaling() -> Made:
    rows = [
        {"world": w, "backend": b, "tflops": base * w**power, "mode": mode, "ceiling": 900.0 * w**0.9}
        for b, base, power in (("fused", 480, 0.93), ("bulk", 450, 0.85), ("library", 430, 0.8))
        for mode in ("strong", "weak")
        for w in (1, 2, 4, 8)
    ]
    keys = {"ideal": {"strong": "proportional", "weak": "proportional"}, "ceiling": "ceiling"}
    found = spec("scaling", "GEMM + all-scatter over ranks", y="tflops", group="backend", by="mode", **keys)
    return found | {"baselines": ["library"]}, pd.DataFrame(rows)


def heatmap(rows: int = 9, columns: int = 11) -> Made:
    tiles = [f"{m}x{n}x{k}" for m, n, k in itertools.product((16, 64, 128, 256), (64, 128, 256), (32, 64))][:rows]
    tiles += [f"{n}x{n}x{n}" for n in range(len(tiles), rows)]
    made = [
        {"tile": tile, "M": 2**k, "us": 5 + 2**k / 40 + 9 * abs(math.log2(2**k / int(tile.split("x")[0]))), "stages": s}
        for tile in tiles
        for k in range(columns)
        for s in (2, 3)
    ]
    x = {"column": "M", "label": "M", "unit": "rows", "scale": "category"}
    y = {"column": "tile", "label": "tile M × N × K", "unit": "1", "scale": "category"}
    return spec("heatmap", "Which tile for which M", x=x, y=y, value="us"), pd.DataFrame(made)


def roofline(points: int = 10, links: bool = True, groups: int = 3) -> Made:
    random = np.random.default_rng(7)
    intensity = 10 ** random.uniform(0, 3.5, points)
    flops = 10 ** random.uniform(9, 12, points)
    roof = np.minimum(989e12, intensity * 4.8e12) * random.uniform(0.3, 0.95, points)
    frame = pd.DataFrame({"flops": flops, "hbm_bytes": flops / intensity, "seconds": flops / roof})
    frame["link_bytes"] = frame["hbm_bytes"] / 8 if links else 0
    frame["case"] = [f"llm_case_m{n}" for n in range(points)]
    frame["config"] = [f"{64 << n % groups}x128x64" if groups < 6 else f"config_{n % groups}" for n in range(points)]
    ceilings = {"peak_tflops": {"fp16": 989.4, "fp8": 1978.9}, "hbm_gbs": 4800, "link_gbs": 450 if links else None}
    return spec("roofline", f"{points} points under the roofs", group="config", ceilings=ceilings), frame


def before_after() -> Made:
    rows = [
        {
            "change": change,
            "case": f"m{m}",
            "before": m / 3,
            "after": m / 3 * r,
            "ratio_low": r - 0.01,
            "ratio_high": r + 0.01,
        }
        | {
            "regs_0": 128,
            "regs_1": 128 - 8 * n,
            "width_0": "2 x 64 b",
            "width_1": "1 x 128 b",
            "spill_0": 0,
            "spill_1": 0,
        }
        for n, (change, r) in enumerate((("vector hint", 0.93), ("non-temporal", 1.02), ("prologue prefetch", 0.99)))
        for m in (64, 4096)
    ]
    code = [
        {"label": label, "before": f"{name}_0", "after": f"{name}_1"}
        for label, name in (("VGPRs", "regs"), ("stores", "width"), ("spills", "spill"))
    ]
    return spec("before_after", "Hints: time and machine code", code=code), pd.DataFrame(rows)


def bars(cases: int = 4, backends: int = 4) -> Made:
    names = ["library loop", "hipblaslt", "triton", "ck", "gmm", "autotune", *(f"b{n}" for n in range(9))][:backends]
    rows = [
        {"case": f"deepseek_v3_e{n}_k{2048 + n}", "backend": name, "tflops": 400 + 30 * k + 11 * n}
        for n in range(cases)
        for k, name in enumerate(names)
    ]
    x = {"column": "case", "label": "case", "unit": "1", "scale": "category"}
    found = spec("bars", "Grouped GEMM, balanced", x=x, y="tflops", group="backend", baselines=names[:1])
    return found, pd.DataFrame(rows)


def sweep(points: int = 60) -> Made:
    random = np.random.default_rng(3)
    ratio = 0.86 + np.sort(random.gamma(2.0, 0.12, points))
    frame = pd.DataFrame(
        {"point": [f"BLK_M=128 BLK_N={n} num_stages=3 GROUP_M=8" for n in range(points)], "ratio": ratio}
    )
    frame["low"], frame["high"], frame["status"] = 0.995 * ratio, 1.006 * ratio, "ok"
    pruned = pd.DataFrame({"point": [f"p{n}" for n in range(30)], "status": ["spills"] * 18 + ["same code"] * 12})
    both = pd.concat([frame, pruned], ignore_index=True)
    return spec("sweep", "gemm llm_down_m64: points of a sweep", anchor="the rule's configuration"), both


MADE = {
    "curve": curve, "panels": panels, "three": three_panels, "cus": cus, "scaling": scaling, "heatmap": heatmap,
    "roofline": roofline, "before_after": before_after, "bars": bars, "sweep": sweep,
}  # fmt: skip


def _renamed(made: Made, column: str) -> Made:
    found, data = made
    return found | {"title": LONG + " " + LONG}, data.assign(**{column: [f"{LONG}{n % 12}" for n in range(len(data))]})


def hostile() -> dict[str, Made]:
    """Data that are hard to draw."""
    holes = curve()[1].assign(tflops=lambda d: d["tflops"].where(d.index % 3 != 0).replace(d["tflops"].max(), np.inf))
    huge = curve()[1].assign(tflops=lambda d: d["tflops"] ** 4, low=np.nan, high=np.nan)
    return {
        "one_point": (curve()[0], curve()[1].head(1)),
        "holes": (curve()[0], holes),
        "huge": (curve()[0], huge),
        "twelve": curve(12),
        "twenty": curve(20),
        "long_groups": _renamed(curve(12), "backend"),
        "long_cases": _renamed(bars(12, 3), "case"),
        "many_bars": bars(48, 6),
        "one_bar": bars(1, 1),
        "wide_map": heatmap(24, 40),
        "tall_map": heatmap(90, 6),
        "one_cell": heatmap(1, 1),
        "long_map": _renamed(heatmap(4, 3), "tile"),
        "roof_60": roofline(60, links=False),
        "roof_1200": roofline(1200, links=False, groups=11),
        "roof_configs": roofline(1200, links=True, groups=300),
        "one_roof": roofline(1, links=False, groups=1),
        "sweep_1200": sweep(1200),
        "sweep_1": sweep(1),
        "long_sweep": _renamed(sweep(30), "point"),
        "long_changes": _renamed(before_after(), "case"),
    }


def write(
    results: Path, name: str, figures: Mapping[str, Made], machine: str = "h200x1-537ca5d2", draw: bool = False
) -> Path:
    """The folder of a study with these figures, as `ridgeline study` leaves it; draw: with PNG and SVG."""
    folder = results / "studies" / name / machine
    folder.mkdir(parents=True)
    for figure, (said, data) in figures.items():
        (folder / f"{figure}.json").write_text(json.dumps(said))
        data.to_csv(folder / f"{figure}.csv", index=False)
        if draw:
            command.figures(folder / f"{figure}.json", folder / f"{figure}.csv", folder / figure)
    table = curve()[1].rename(columns={"tflops": "triton: tflops"}).assign(why="")
    table.to_csv(folder / "table.csv", index=False)
    (folder / "table.md").write_text("# table\n")
    told = {
        "name": name, "title": f"Study {name}", "question": "Which tile for which M?", "operators": ["gemm"],
        "machine": machine, "device": "H200", "commit": FOOT["commit"], "date": "2026-11-22", "regime": "spaced",
        "versions": FOOT["versions"], "figures": list(figures), "waits": ["4 ranks: a machine with 4 GPUs"],
        "guidance": [{"rule": "M up to 64: 64x64", "loses": 0.012}, {"rule": "else 128x128", "loses": None}],
    }  # fmt: skip
    (folder / "study.json").write_text(json.dumps(told))
    return folder
