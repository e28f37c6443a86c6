"""Reports for the golden files: one per verdict, a hostile one, a large one."""

from __future__ import annotations

from ci.judging.types import CaseVerdict, Floor, Group, Judgement, Verdict
from ci.report import CaseCost, Report, ReportWarning, Side, Skip
from ci.stats import Clocks

VERSIONS = {"torch": "2.11.0", "triton": "3.6.0"}
BASE = Side("9f8e7d6c5b4a39281706f5e4d3c2b1a098765432", "main", environment=VERSIONS)
HEAD = Side("0123456789abcdef0123456789abcdef01234567", "fewer-stages", environment=VERSIONS)
H200 = {
    "name": "h200-1a2b3c4d",
    "kind": "gpu",
    "arch": "sm_90",
    "device": "NVIDIA H200",
    "market_name": "H200 SXM",
    "count": 1,
    "compute_units": 132,
    "power_cap_w": 700,
    "partition": None,
    "driver": "570.1",
}
MI300X = {
    "name": "mi300xx8-5e6f7a8b",
    "kind": "gpu",
    "arch": "gfx942",
    "device": "AMD Instinct MI300X",
    "market_name": "MI300X",
    "count": 8,
    "compute_units": 304,
    "power_cap_w": 750,
    "partition": "SPX/NPS1",
}


def gemm(name, verdict, ratio, half=0.003, base_us=40.0, **more):
    """A gemm case with an interval of ratio +- half."""
    known = (
        {}
        if ratio is None
        else {
            "ratio": ratio,
            "ci_low": ratio - half,
            "ci_high": ratio + half,
            "p_value": 1e-5,
            "trials": 8,
            "rounds": 40,
            "base_seconds": base_us * 1e-6,
            "head_seconds": base_us * 1e-6 * ratio,
        }
    )
    return CaseVerdict(f"gemm/triton/{name}", "gemm", "triton", verdict, **{**known, **more})  # type: ignore[arg-type]


def cost(m, n, k):
    """Of a 16-bit GEMM."""
    return CaseCost(flops=2 * m * n * k, hbm_bytes=2 * (m * k + k * n + m * n))


SLOWER_CASES = (
    gemm("qkv_m1024", Verdict.SLOWER, 1.0252, 0.0041, 112.0),
    gemm("up_m1024", Verdict.SLOWER, 1.031, 0.002, 115.4),
    gemm("down_m2048", Verdict.SLOWER, 1.018, 0.0015, 208.0),
    gemm("qkv_m1", Verdict.FASTER, 0.9712, 0.0021, 19.4),
    *(gemm(f"qkv_m{2**i}", Verdict.SAME, 1 + 0.0003 * i, 0.001) for i in range(1, 8)),
    gemm("up_m16", Verdict.CANNOT_TELL, 1.006, 0.011, 31.0, evidence=("the budget of 24 trials is spent",)),
    gemm("qkv_m8192_fp8", Verdict.NEW, None, head_seconds=3.1e-4, evidence=("the base does not have this case",)),
)


def slower():
    """A pull request that lost time on three neighbouring shapes."""
    judgement = Judgement(
        Verdict.SLOWER,
        "gemm takes 2.5 % longer on 3 of 13 cases",
        SLOWER_CASES,
        (
            Group(
                "gemm",
                "triton",
                "slower",
                tuple(c.case for c in SLOWER_CASES[:3]),
                1.0247,
                1.0215,
                1.0279,
                "one cause is likely: all three use 128x256x64 tiles; confirmed by 4 fresh trials",
            ),
        ),
        (
            Floor(
                "gemm/triton/up_m1024",
                "blas",
                0.9,
                "users would call hipBLASLt otherwise (2026-11-01)",
                "missed",
                0.871,
                0.869,
                0.874,
                0.903,
            ),
            Floor("gemm/triton/qkv_m1024", "blas", 0.9, "as above", "met", 0.95, 0.94, 0.96, 0.97),
        ),
        ("head ran at 1,905 MHz and base at 1,950 MHz: 2.3 % of the change may be the clock",),
    )
    costs = {case.case: cost(int(case.case.split("_m")[1].split("_")[0]), 8192, 4096) for case in SLOWER_CASES}
    return Report(
        judgement,
        base=BASE,
        head=HEAD,
        machine=H200,
        costs=costs,
        clocks={"base": Clocks(1950, 612.4, 61, ""), "head": Clocks(1905, 698.8, 66, "sw power cap")},
        skipped=(
            Skip("gemm/hip/qkv_m1024", "unsupported", "no hipBLASLt here; needs ROCm 6 or newer"),
            Skip("all_gather", "skipped", "world 4 needs 4 GPUs; this machine has 1"),
        ),
        links={"run": "https://github.com/o/r/actions/runs/42"},
    )


def same():
    """Nothing moved."""
    cases = tuple(gemm(f"qkv_m{2**i}", Verdict.SAME, 1 + 0.0004 * (i % 3 - 1), 0.0008) for i in range(12))
    return Report(
        Judgement(Verdict.SAME, "12 cases, none moved by the smallest effect of 0.5 %", cases),
        base=BASE,
        head=HEAD,
        machine=H200,
    )


def broken():
    """One wrong result, one crash, one changed benchmark definition: no times to show."""
    cases = (
        gemm("down_m64", Verdict.BROKEN, None, evidence=("head is wrong: norm 0.31 > 0.002 at [17, 4032]",)),
        gemm("down_m128", Verdict.BROKEN, None, evidence=("head crashed: HIP error 700, illegal memory access",)),
        gemm("up_m64", Verdict.NOT_COMPARABLE, None, evidence=("inputs changed: base 11aa22bb, head 33cc44dd",)),
        gemm("up_m1", Verdict.SAME, 1.0001, 0.0005),
    )
    return Report(
        Judgement(Verdict.BROKEN, "2 of 4 cases no longer work", cases),
        base=BASE,
        head=Side(HEAD.commit, "fewer-stages", dirty=True),
        machine=H200,
    )


EVIL = (
    "<script>alert(1)</script> | `x` **b** @octocat #1 [l](http://evil.example) \u202ereversed\u0007\n"
    "# heading GH-12 ![i](x)"
)


def hostile():
    """Every text is an attack on the page that shows it."""
    case = CaseVerdict(EVIL, EVIL, EVIL, Verdict.SLOWER, 1.1, 1.09, 1.11, evidence=(EVIL,), warnings=(EVIL * 9,))
    side = Side("", EVIL, environment={EVIL: EVIL})
    judgement = Judgement(
        Verdict.SLOWER,
        EVIL,
        (case,),
        (Group(EVIL, EVIL, "slower", (EVIL,), 1.1, 1.09, 1.11, EVIL),),
        (Floor(EVIL, EVIL, 0.9, EVIL, "missed", 0.8),),
        (EVIL,),
    )
    return Report(
        judgement,
        EVIL,
        side,
        side,
        {EVIL: EVIL, "name": EVIL},
        {EVIL: CaseCost(flops=1)},
        {EVIL: Clocks(throttle=EVIL)},
        (Skip(EVIL, EVIL, EVIL),),
        (ReportWarning(EVIL),),
        {EVIL: "javascript:alert(1)", "two": "https://x.example/) [a](http://evil.example"},
    )


def large(number=3000):
    """More cases than a comment can hold."""
    cases = tuple(
        gemm(
            f"shape_{i:05d}_with_a_rather_long_name",
            Verdict.SLOWER if i % 2 else Verdict.SAME,
            1 + i / 1e5,
            evidence=(f"evidence number {i}",),
        )
        for i in range(number)
    )
    return Report(
        Judgement(Verdict.SLOWER, f"{number // 2} cases became slower", cases), base=BASE, head=HEAD, machine=H200
    )
