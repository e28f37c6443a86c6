"""Synthetic histories in the columns of `ci.records`: a plausible MI300X and a small H200 pool."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ci.records import derived
from ci.records.devices import DeviceAtWork, devices_text

PEAK_FLOPS, HBM, LINK = 1307.4e12, 5.3e12, 448e9
MACHINES = {
    "mi300x-8-0f3a9c1e": ("gfx942", "AMD Instinct MI300X", "MI300X", 8, 1.0),
    "h200x2-1a2b3c4d": ("sm_90", "NVIDIA H200", "H200 SXM", 2, 0.9),
}


def case_of(kernel, case, *cost, best, baseline_share, **more):
    """cost: FLOPs, bytes of HBM, over links, and moved.  best, baseline_share: shares of the peak that are reached."""
    costs = dict(zip(("flops", "hbm_bytes", "link_bytes", "payload_bytes"), (*cost, 0, 0), strict=False))
    about = {"kernel": kernel, "case": case, "tier": "pr", "dtype": "bf16", "world": 1}
    return about | costs | {"best": best, "baseline_share": baseline_share} | more


def gemm(case, m, n, k, kernel="gemm", world=1, **more):
    """A dense fp16 GEMM."""
    sent = 2 * m * n if world > 1 else 0
    cost = 2 * m * n * k, 2 * (m * k + k * n + m * n), sent * (world - 1) // world, sent
    return case_of(kernel, case, *cost, best=0.62, baseline_share=0.66, dtype="fp16", world=world, **more)


def stream(kernel, case, size, **more):
    """A kernel bound by HBM."""
    return case_of(kernel, case, size, size * 4, best=0.81, baseline_share=0.55, **more)


def gather(size):
    """An all-gather; small sizes are bound by latency."""
    shares = {"best": 0.75 * size / (size + 6e6), "baseline_share": 0.70 * size / (size + 9e6)}
    return case_of("all_gather", f"w8_{size >> 10}k", 0, 2 * size, size * 7 // 8, size, world=8, **shares)


CASES = [
    gemm("llm_down_m64", 64, 4096, 14336),
    gemm("llm_up_m4096", 4096, 28672, 4096),
    gemm("square_8192", 8192, 8192, 8192, tier="nightly"),
    gemm("tp8_m2048", 2048, 8192, 28672, kernel="gemm_all_scatter", world=8),
    stream("rms_norm", "h8192_t4096", 8192 * 4096),
    stream("rms_norm", "h4096_t16", 4096 * 16, tier="nightly"),
    stream("softmax", "v128k_t512", 131072 * 512),
    *(gather(1 << p) for p in range(16, 31, 2)),
]


def history(commits=120, cases=None, machines=None, seed=7, backends=("triton", "gluon")):
    """Long frame: every case on every machine at every commit, by the own backends and one vendor library each."""
    rng = np.random.default_rng(seed)
    hashes = [f"{v:040x}" for v in (int.from_bytes(rng.bytes(20), "big") for _ in range(commits))]
    dates = pd.Timestamp("2026-01-05T09:00:00Z") + pd.to_timedelta(np.cumsum(rng.integers(2, 40, commits)), unit="h")
    parts = []
    for machine in machines or MACHINES:
        walk = np.cumsum(rng.normal(0, 0.004, commits))
        drift = 1 + 0.02 * np.tanh(walk / 0.02) * 0.8
        for case in CASES if cases is None else cases:
            library = "rccl" if case["flops"] == 0 else "blas" if "gemm" in case["kernel"] else "torch"
            for backend in (*backends, library):
                parts.append(_series(machine, case, backend, backend == library, hashes, dates, drift, rng))
    return derived.derive(pd.concat(parts, ignore_index=True))


def _series(machine, case, backend, baseline, hashes, dates, drift, rng):
    arch, device, market, count, speed = MACHINES[machine]
    bound = max(case["flops"] / PEAK_FLOPS, case["hbm_bytes"] / HBM, case["link_bytes"] / LINK)
    level = np.full(len(hashes), 1.0)
    for _ in range(0 if baseline else 3):
        level[rng.integers(0, len(hashes)) :] *= rng.choice([0.9, 0.96, 1.05, 0.93])
    share = (case["baseline_share"] if baseline else case["best"] * (0.9 if backend == "gluon" else 1.0)) * speed
    seconds = (bound / share * level * drift + 2e-6) * (1 + rng.normal(0, 0.003, len(hashes)))
    spread = np.abs(rng.normal(0.004, 0.001, len(hashes)))
    return pd.DataFrame(
        {
            "machine": machine,
            "arch": arch,
            "device": device,
            "market_name": market,
            "count": count,
            "commit": hashes,
            "date": dates,
            "env": "py3.12-torch2.11.0-triton3.6.0",
            "kernel": case["kernel"],
            "backend": backend,
            "baseline": baseline,
            "case": case["case"],
            "tier": case["tier"],
            "dtype": case["dtype"],
            "world": case["world"],
            "seconds": seconds,
            "seconds_low": seconds * (1 - spread),
            "seconds_high": seconds * (1 + spread),
            "samples": 120,
            "trials": 3,
            **{c: case[c] for c in ("flops", "hbm_bytes", "link_bytes", "payload_bytes")},
            "status": "ok",
            "why": "",
            "yardstick": "a" * 16,
            "case_yardstick": "",
            "kind": "gpu",
            "compute_units": 304.0 if arch == "gfx942" else 132.0,
            "memory_bytes": np.nan,
            "chip_id": "",
            "method": "events",
            "devices": [_devices(count, 2100.0 - number) for number in range(len(hashes))],
        }
    )


def _devices(count, clock_mhz):
    """What the GPUs of a machine report at work, each 1 MHz slower than the one before."""
    return devices_text([DeviceAtWork(clock_mhz - gpu, 700.0, 61.0, 0.0) for gpu in range(count)])


def spoil(frame, select, status, why):
    """The same frame with the selected rows not measured."""
    frame = frame.copy()
    numbers = [
        "seconds",
        "seconds_low",
        "seconds_high",
        "tflops",
        "gbs",
        "algbw",
        "busbw",
        "peak_share",
        "baseline_ratio",
    ]
    frame.loc[select, numbers] = np.nan
    frame.loc[select, ["samples", "trials"]] = 0
    frame.loc[select, ["status", "why"]] = [status, why]
    return frame


def lively(commits=120):
    """A history with everything that happens: faults, a new benchmark definition, a new environment, gaps."""
    frame = history(commits)
    order = frame["commit"].drop_duplicates().tolist()
    last, late = order[-1], set(order[-commits // 6 :])
    mi300x = frame["machine"] == "mi300x-8-0f3a9c1e"
    frame.loc[frame["commit"].isin(order[commits // 2 :]) & (frame["kernel"] == "gemm"), "yardstick"] = "b" * 16
    frame.loc[frame["commit"].isin(late), "env"] = "py3.12-torch2.13.0-triton3.8.0"
    frame = spoil(
        frame,
        (frame["backend"] == "gluon") & (frame["kernel"] == "softmax"),
        "unsupported",
        "rows longer than 65536 do not fit the LDS of one CU; split the row over two passes",
    )
    frame = spoil(
        frame,
        (frame["commit"] == last) & (frame["case"] == "h4096_t16") & (frame["backend"] == "triton") & mi300x,
        "wrong",
        "||out - ref|| / ||ref|| is 0.31, allowed 0.002; the first wrong element is at (0, 2048)",
    )
    frame = spoil(
        frame,
        frame["commit"].isin(order[commits // 4 : commits // 4 + 4])
        & (frame["kernel"] == "gemm")
        & (frame["backend"] == "triton"),
        "crash",
        "worker ended by signal 11 while warming up",
    )
    frame = spoil(
        frame,
        (frame["commit"] == last) & (frame["case"] == "tp8_m2048") & (frame["backend"] == "gluon"),
        "hang",
        "no answer for 120 s; rank 3 of 8 was in the kernel",
    )
    gone = (frame["tier"] == "nightly") & ~frame["commit"].isin(order[::-5])
    return frame[~gone].reset_index(drop=True)


def one_case(commits=6, **changes):
    """One GEMM case by triton and its baseline on one machine; columns set to lists by `changes` for triton."""
    frame = history(commits, CASES[:1], machines=["mi300x-8-0f3a9c1e"], backends=("triton",))
    for column, values in changes.items():
        frame.loc[frame["backend"] == "triton", column] = values
    return frame


def with_times(triton, blas, spread=0.001):
    """Histories with exactly these seconds."""
    frame = history(len(triton), CASES[:1], machines=["mi300x-8-0f3a9c1e"], backends=("triton",))
    for backend, times in (("triton", triton), ("blas", blas or triton)):
        rows = frame["backend"] == backend
        frame.loc[rows, "seconds"] = times
        frame.loc[rows, "seconds_low"] = np.array(times) * (1 - spread)
        frame.loc[rows, "seconds_high"] = np.array(times) * (1 + spread)
    if blas is None:
        frame = frame[frame["backend"] == "triton"]
    return derived.derive(frame)


# Texts that try to become something else: markup, scripts, addresses, formulas, properties, half letters.


TEXTS = (
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    '"><svg onload=window.pwned=1>',
    "' onmouseover='window.pwned=1",
    "javascript:window.pwned=1",
    "data:text/html,<script>window.pwned=1</script>",
    "{{7*7}}{% raw %}",
    "${window.pwned=1}`",
    "<!--",
    "]]>&lt;&amp;&#60;",
    "__proto__",
    "constructor",
    "toString",
    "\u202egnitset\u202c",
    "\u2066\u2067left or right",
    "half \ud800 a letter",
    "nul \x00 and \x1b[31m escape",
    "\u2028line\u2029paragraph",
    "x" * 600,
    "=HYPERLINK(1)",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "../../../etc/passwd",
    "a/b\\c?d#e&f=g%00",
    "é\u0301 \U0001f525 漢字 \u200b",
    "' OR 1=1; -- $(reboot) `reboot`",
)
"""25 of them."""
