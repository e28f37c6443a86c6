"""Studies h and i, of experts: grouped GEMM by backends and by streams, and the MXFP4 product over M."""

from __future__ import annotations

from benchmarks.studies.types import Column, Compared, Drawn, Listed, Row, Rows, Study, StudyPart, Tried

# Study h: the backends of the grouped GEMM side by side, for each product, model and routing.

OPERATORS = tuple(f"grouped_gemm_{product}" for product in ("forward", "dgrad", "wgrad"))
OTHERS = ("torch_grouped", "ck", "hipblaslt_grouped", "gmm", "aiter_gmm", "triton", "autotune")
CASES = tuple(
    f"*_m{mean}_{routing}" for mean in (2048, 4096) for routing in ("balanced", "mild", "extreme", "unbalanced")
)
CANDIDATES = ("loop", *OTHERS[:-1])

GROUPED_GEMM = Study(
    name="grouped_gemm",
    title="Grouped GEMM: backends side by side",
    question="Which backend for which product, model and routing, and does autotune choose the best of them?",
    source="The backend tables of Primus-Turbo's grouped GEMM (benchmark/ops/training, 2026-08): means, wins, "
    "autotune against the best of its candidates.  Balanced and its unbalanced routing, and two harder ones of ours.",
    parts=tuple(StudyPart(operator, CASES, anchor="loop", arms=OTHERS) for operator in OPERATORS),
    compared=Compared(
        keys=("operation", "model", "layer", "G", "M", "routing"),
        baseline="loop",
        value="tflops",
        score="higher",
        by=(("operation",), ("model",), ("routing",)),
        regret={"autotune": CANDIDATES},
    ),
    table=Listed(
        keys=("operation", "model", "layer", "G", "M", "routing"), columns=("tflops",), spread="backend",
        rows=Rows(pick="plain"),
    ),
    figures=(
        Drawn(
            "backends", "bars", "Grouped GEMM, bf16: speed of each backend in each case",
            {"x": "case", "y": "tflops", "group": "backend", "by": "operation", "baselines": ["loop"]},
            Rows(pick="plain"),
        ),
        Drawn(
            "means", "bars", "Grouped GEMM, bf16: geometric mean of speed / speed of the loop",
            {"x": {"column": "rows_of", "label": "rows", "unit": "1", "scale": "category"},
             "y": {"column": "mean_ratio", "label": "speed / speed of the loop", "unit": "1"},
             "group": "backend", "geomean": False},
            Rows(pick="plain"), reshape="comparison",
        ),
    ),
)  # fmt: skip


# Study h, second part: the library's products of a grouped GEMM one after the other, or on several streams.


MEANS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
STREAM_CASES = tuple(f"{model}_*_m{mean}_balanced" for model in ("dsv3", "lfm2") for mean in MEANS)


def streams(row: Row) -> str:
    """ "serial", or "4 streams", by the knob `streams`."""
    count = int(row["config"].get("streams", 1))
    return "serial" if count == 1 else f"{count} streams"


def experts(row: Row) -> str:
    """Model, layer and number of experts: a case is named "dsv3_gateup_b8_m2048_mild"."""
    named = row["case"].split("_")[:2]
    return ", ".join([*named, f"{row['dims']['G']} experts"] if "G" in row["dims"] else named)


STREAMS = Study(
    name="streams",
    title="Grouped GEMM by the library: serial against several streams",
    question="Up to which group size do several streams pay?",
    source="The multi-stream threshold of Primus-Turbo's grouped GEMM, whose hipBLASLt backend uses four streams.",
    parts=tuple(
        StudyPart(operator, STREAM_CASES, anchor="loop", tried=(Tried("loop", knobs={"streams": (2, 4, 8)}),))
        for operator in OPERATORS
    ),
    guidance=("streams_by_m",),
    columns={
        "streams_text": Column("how", "", 0, streams),
        "experts": Column("model, layer, experts", "", 0, experts),
    },
    table=Listed(
        keys=("operation", "model", "layer", "G", "M"), columns=("us", "ratio", "low", "high"), spread="streams_text",
    ),
    figures=tuple(
        Drawn(
            product, "panels", f"Grouped GEMM, {product}: time on streams / time of the serial loop",
            {"x": "M", "y": "ratio", "group": "streams_text", "by": "experts"},
            Rows({"operation": (product,)}),
        )
        for product in ("forward", "dgrad", "wgrad")
    ),
)  # fmt: skip


# Study i: the second product of MXFP4 experts over M.


BATCHES = tuple(f"kimi_m{m}_bm{block}" for m in (4, 8, 16, 32, 64, 128, 256) for block in (16, 32))
FP4_LIBRARIES = ("triton_kernels", "humming_w4a16", "humming_w4a8", "aiter_ck", "aiter_mxmoe_atomic", "flydsl_gemm2")
TIME = {"column": "us", "scale": "log"}

MXFP4 = Study(
    name="mxfp4",
    title="MXFP4 expert product over M: ours and the libraries, BM 16 and 32, non-temporal loads",
    question="From which M on is BM 32 better, do non-temporal loads pay, and are the bits the same everywhere?",
    source="The M list of the published gemm2 tables for Kimi-K2 (7168 x 512, 385 experts, top 9), decode sizes.",
    parts=(
        StudyPart(
            "moe_gemm2_mxfp4",
            BATCHES,
            anchor="triton_atomic",
            arms=("triton_reduce", *FP4_LIBRARIES),
            tried=tuple(
                Tried(backend, knobs={"non_temporal": (True, False)}) for backend in ("triton_atomic", "triton_reduce")
            ),
        ),
        StudyPart(
            "moe_gemm2_mxfp4", ("kimi_m16_bm16_exact",), anchor="triton_reduce",
            arms=("triton_atomic", *FP4_LIBRARIES), check=True,
        ),
    ),
    table=Listed(
        keys=("M", "BM", "backend", "non_temporal"),
        columns=("us", "tflops", "gbs", "roofline_percent", "ratio", "low", "high", "baseline_ratio"),
    ),
    figures=(
        Drawn(
            "over_m", "panels", "MXFP4 expert product over M, BM 16 and 32",
            {"x": "M", "y": TIME, "group": "backend", "by": "BM", "baselines": list(FP4_LIBRARIES)}, Rows(pick="plain"),
        ),
        Drawn(
            "non_temporal", "panels", "MXFP4 expert product: non-temporal loads of the weights",
            {"x": "M", "y": TIME, "group": "non_temporal", "by": "BM"}, Rows({"backend": ("triton_atomic",)}),
        ),
    ),
)  # fmt: skip
