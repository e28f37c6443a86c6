"""Stand-ins for functions of other libraries, with the recorded signatures and the semantics of their sources.

What they read where is written down here a second time, from what the vendor's kernel reads (mxmoe_gemm_v2.py: bq_view,
scale_view, make_ascale_view) and not from how our adapters lay it out: the two must meet.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kernels.moe_gemm2_mxfp4 import formats

OPERATOR = "::"
"""Between the namespace and the name of a torch operator."""


@dataclasses.dataclass(frozen=True)
class UpstreamFunction:
    """A function as it was read.  parameters: as in its source or in a schema; earlier: of older versions."""

    name: str
    distribution: str
    repository: str
    path: str
    commit: str
    date: str
    parameters: tuple[str, ...]
    tensors: Mapping[str, Mapping[str, Any]]
    earlier: tuple[tuple[str, ...], ...]


def _recorded():
    for file in (Path(__file__).parents[1] / "recordings" / "vendors").glob("*.json"):
        told = json.loads(file.read_text())
        about = {key: told[key] for key in ("distribution", "repository", "commit", "date")}
        for one in told["functions"]:
            own = {key: one[key] for key in ("name", "path", "tensors")}
            earlier = tuple(_parameters(old["signature"]) for old in one.get("earlier", ()))
            yield UpstreamFunction(**about, **own, parameters=_parameters(one["signature"]), earlier=earlier)


def _parameters(signature):
    """Of `def f(...)` or of a schema `f(...) -> Tensor`."""
    inside = signature.partition("(")[2].removesuffix(" -> Tensor").removesuffix(")")
    return tuple(re.split(r",\s*", inside))


def name_of(parameter):
    return parameter.partition("=")[0].split()[-1]


RECORDED = {one.name: one for one in _recorded()}
DTYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.float4_e2m1fn_x2: "float4_e2m1fn_x2",
}
TOKEN, SLOT = 0xFFFFFF, 24
NAMESPACE = "primus_turbo_cpp_extension"


# ---- grouped GEMM --------------------------------------------------------------------------------------------------


def starts_of(sizes):
    return [0, *torch.as_tensor(sizes).cumsum(0).tolist()]


def rows_product(left, right, sizes, transposed):
    starts, out = starts_of(sizes), []
    for group, (first, last) in enumerate(zip(starts, starts[1:], strict=False)):
        weights = right[group].float()
        out.append(left[first:last].float() @ (weights.T if transposed else weights))
    return torch.cat(out).to(left.dtype)


def weights_product(left, right, sizes):
    starts = starts_of(sizes)
    parts = [left[a:b].float().T @ right[a:b].float() for a, b in zip(starts, starts[1:], strict=False)]
    return torch.stack(parts).to(left.dtype)


def ck_grouped_gemm(a, b, group_lens, group_offs, transA, transB, num_cu=None, work_steal=False, *_):
    assert not transA
    assert group_offs.tolist() == starts_of(group_lens)
    assert not work_steal
    return rows_product(a, b, group_lens, transB)


def ck_grouped_gemm_variable_k(a, b, group_lens, group_offs, transA, transB, *_):
    assert transA
    assert not transB
    assert group_offs.tolist() == starts_of(group_lens)
    return weights_product(a, b, group_lens)


def hipblaslt_grouped_gemm(a, b, group_lens, group_offs, transA, transB, pre_sync, beta=0.0, out=None):
    """As upstream: the rows of an empty group are skipped, its weights are not."""
    assert beta == 0.0
    if transA:
        result = weights_product(a, b, group_lens)
    else:
        result = rows_product(a, b, group_lens[group_lens > 0], transB)
    return result if out is None else out.copy_(result)


def gmm_of_grouped_gemm(a, b, batch_sizes, trans_a, trans_b, c, **_):
    assert not (trans_a and trans_b)
    assert batch_sizes.device.type == "cpu"
    return c.copy_(weights_product(a, b, batch_sizes) if trans_a else rows_product(a, b, batch_sizes, trans_b))


def gmm_of_aiter(lhs, rhs, group_sizes, existing_out, preferred_element_type, **_):
    groups, depth, columns = rhs.shape
    assert rhs.stride() in ((depth * columns, columns, 1), (depth * columns, 1, depth))
    assert lhs.stride() == (depth, 1)
    assert groups == group_sizes.numel()
    assert existing_out.dtype == preferred_element_type
    return existing_out.copy_(rows_product(lhs, rhs, group_sizes, False))


def ptgmm_of_aiter(lhs, rhs, group_sizes, existing_out, **_):
    assert lhs.stride() == (1, lhs.shape[0])
    assert rhs.is_contiguous()
    return existing_out.copy_(weights_product(lhs.T, rhs, group_sizes))


# ---- the second product of a mixture of experts --------------------------------------------------------------------


def weights_at(buffer, experts, rows, depth):
    """Values fp32 [experts, rows, depth] of codes and their bytes, where bq_view reads them."""
    e, n, byte = torch.meshgrid(torch.arange(experts), torch.arange(rows), torch.arange(depth // 2), indexing="ij")
    step, lane, inside = byte // 64, byte % 64 // 16, byte % 16  # 128 codes; 32 codes; 2 codes
    at = (e * rows + n // 16 * 16) * (depth // 2) + step * 1024 + lane * 256 + n % 16 * 16 + inside
    return buffer.reshape(-1).view(torch.uint8)[at]


def scales_at(buffer, tile, row, depth):
    """Scales u8 [len(row), depth / 32] of rows in tiles, where scale_view reads them: a word for 4 scales."""
    columns = torch.arange(depth // 32)
    words = -(-depth // 256) * 64
    word = tile[:, None] * words + columns // 8 * 64 + columns % 4 * 16 + row[:, None] % 16
    return buffer.reshape(-1).view(torch.uint8)[word * 4 + columns % 8 // 4 * 2 + row[:, None] % 32 // 16]


def expert_weights(codes, scales, experts, rows, depth):
    line = torch.arange(experts * rows)
    found = scales_at(scales, line // 32, line, depth).view(experts, rows, depth // 32)
    return formats.dequantise(weights_at(codes, experts, rows, depth), found)


def sorted_products(activations, scales, weights, ids, experts, used, block, tokens):
    """(sorted row, token, slot, product [N]) of every real row; activations: u8 [row, K / 2] by sorted row."""
    line = torch.arange(used)
    tile = line // block if block < 32 else line // 32
    found = scales_at(scales, tile, line % block if block < 32 else line, weights.shape[-1])
    values = formats.dequantise(activations[:used], found)
    for row in range(used):
        packed = int(ids[row])
        if packed & TOKEN < tokens:
            yield row, packed & TOKEN, packed >> SLOT, weights[int(experts[row // block])] @ values[row]


def flydsl_in_aiter(given, out, mode):
    """The product of mxfp4_moe_gemm2 and flydsl_mxfp4_gemm2; mode: how rows are written."""
    weights = expert_weights(given["w2_u8"], given["w2_scale_u8"], given["NE"], given["D_HIDDEN"], given["D_INTER"])
    used, block = int(given["cumsum_tensor"][0]), given["BM"]
    assert given["inter_sorted_quant"].shape[0] == given["max_sorted"]
    assert given["max_sorted"] % block == 0
    assert given["inter_sorted_shuffled_scale"].numel() >= given["max_sorted"] * given["D_INTER"] // 32
    for row, token, slot, product in sorted_products(
        given["inter_sorted_quant"],
        given["inter_sorted_shuffled_scale"],
        weights,
        given["sorted_token_ids"],
        given["sorted_expert_ids"],
        used,
        block,
        given["M_logical"],
    ):
        weighted = product * given["sorted_weights"][row]
        if mode == "atomic":
            out[token] += weighted.to(out.dtype)
        elif mode == "reduce":
            out[token, slot] = weighted.to(out.dtype)
        else:
            out[row] = product.to(out.dtype)


def mxfp4_moe_gemm2(**given):
    assert given["D_HIDDEN"] % given["BN"] == 0
    assert given["D_INTER"] % given["BK"] == 0
    flydsl_in_aiter(given, given["out"], given["epilog"])
    return given["out"]


def flydsl_mxfp4_gemm2(**given):
    atomic = given["atomic"]
    assert (given["BM"], atomic) in {(16, True), (32, True), (64, True), (128, False)}
    assert atomic or not given["use_nt"]
    flydsl_in_aiter(given, given["flat_out"], "atomic" if atomic else "rows")


def moe_reduction(target, out, token_num, topk, model_dim, **_):
    out.copy_(target.view(token_num, topk, model_dim).float().sum(1))


def scatter_reduce(flat_out, reverse_sorted, sorted_weights, out, TOPK, **_):
    rows = reverse_sorted.view(-1, TOPK).long()
    out.copy_((flat_out[rows].float() * sorted_weights[rows][..., None]).sum(1))


def stage2(given, block):
    """ck_moe_stage2_fwd and flydsl_moe_stage2: activations by token and slot."""
    states = given["inter_states"].view(torch.uint8)
    tokens, topk, half = states.shape
    experts, rows = given["w2"].shape[:2]
    weights = expert_weights(given["w2"], given["w2_scale"], experts, rows, 2 * half)
    used, ids = int(given["num_valid_ids"][0]), given["sorted_token_ids"].long()[: int(given["num_valid_ids"][0])]
    place = ((ids & TOKEN) * topk + (ids >> SLOT)).clamp(max=tokens * topk - 1)
    by_row = states.reshape(-1, half)[place]
    for row, token, _, product in sorted_products(
        by_row, given["a2_scale"], weights, ids, given["sorted_expert_ids"], used, block, tokens
    ):
        given["out"][token] += (product * given["sorted_weights"][row]).to(torch.bfloat16)
    return given["out"]


def ck_moe_stage2_fwd(**given):
    assert given["block_m"] in (32, 64, 128)
    assert given["w2"].is_shuffled
    assert given["quant_type"] == "per_1x32"
    assert given["kernelName"] == ""
    return stage2(given, given["block_m"])


def flydsl_moe_stage2(**given):
    assert given["a_dtype"] == given["b_dtype"] == "fp4"
    assert given["sort_block_m"] % given["tile_m"] == 0
    if given["mode"] == "reduce":
        given["out"].zero_()  # it overwrites what it finds
    return stage2(given, given["sort_block_m"])


SEMANTICS = {
    "primus_turbo_cpp_extension::ck_grouped_gemm": ck_grouped_gemm,
    "primus_turbo_cpp_extension::ck_grouped_gemm_variable_k": ck_grouped_gemm_variable_k,
    "primus_turbo_cpp_extension::hipblaslt_grouped_gemm": hipblaslt_grouped_gemm,
    "grouped_gemm.backend.gmm": gmm_of_grouped_gemm,
    "aiter.ops.triton.gmm.gmm": gmm_of_aiter,
    "aiter.ops.triton.gmm.ptgmm": ptgmm_of_aiter,
    "aiter.ops.moe_op.ck_moe_stage2_fwd": ck_moe_stage2_fwd,
    "aiter.ops.flydsl.kernels.mxmoe_dispatcher.mxfp4_moe_gemm2": mxfp4_moe_gemm2,
    "aiter.ops.flydsl.moe_kernels._run_moe_reduction": moe_reduction,
    "aiter.ops.flydsl.mxfp4_gemm2_kernels.flydsl_mxfp4_gemm2": flydsl_mxfp4_gemm2,
    "aiter.ops.moe_mxfp4_aux.mxfp4_moe_scatter_reduce": scatter_reduce,
    "aiter.ops.flydsl.moe_kernels.flydsl_moe_stage2": flydsl_moe_stage2,
}


def checked(function, given):
    """TypeError for a tensor of another kind than the record has."""
    for name, wanted in function.tensors.items():
        value = given.get(name)
        if isinstance(value, torch.Tensor) and DTYPES.get(value.dtype) not in wanted["dtype"]:
            raise TypeError(f"{name} is {DTYPES.get(value.dtype)}, it takes {' or '.join(wanted['dtype'])}")
        if isinstance(value, torch.Tensor) and wanted["shape"][-1] != "..." and value.dim() != len(wanted["shape"]):
            raise TypeError(f"{name} has {value.dim()} dimensions, it takes [{', '.join(wanted['shape'])}]")


# ---- installing them -----------------------------------------------------------------------------------------------

PACKAGE = """
class QuantType:
    No, per_1x32 = "No", "per_1x32"

class ActivationType:
    Silu = "Silu"
"""

HEAD = {
    "aiter": "from torch import bfloat16 as DTYPE\nfrom aiter import ActivationType, QuantType\n",
    "grouped_gemm": "",
}
"""What the modules of a package need for the defaults of their functions."""

MODULE = """
from tests.kernels import vendor_stubs

def {name}({signature}):
    return vendor_stubs.called({full!r}, dict(locals()))
"""

CALLED = {}
"""The record that a stand-in was made from, which may be a changed one."""


def called(name, given):
    """What a stand-in does: check what it got against its record, then what the library would do."""
    checked(CALLED[name], given)
    return SEMANTICS[name](**given)


@contextlib.contextmanager
def installed(folder, functions):
    """Packages with these functions on the path, and torch operators, while the block runs."""
    operators = [one for name, one in functions.items() if OPERATOR in name]
    sources = {"aiter/__init__.py": PACKAGE}
    for name, one in functions.items():
        CALLED[name] = one
        if OPERATOR not in name:
            module, _, last = name.rpartition(".")
            path = f"{module.replace('.', '/')}.py"
            text = MODULE.format(name=last, signature=", ".join(one.parameters), full=name)
            sources[path] = sources.get(path, HEAD[module.partition(".")[0]]) + text
    sources["primus_turbo/pytorch/__init__.py"] = ""
    _write(folder, sources)
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        _register(library, operators)
        yield
    finally:
        library._destroy()
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if re.match(r"(aiter|grouped_gemm|primus_turbo)(\.|$)", name)]:
            del sys.modules[name]


def _write(folder, sources):
    for path, text in sources.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        for parent in target.relative_to(folder).parents:
            if parent != Path() and not (folder / parent / "__init__.py").exists():
                (folder / parent / "__init__.py").write_text("")


def _register(library, operators):
    """The operators of a namespace, on the CPU, with the schemas of their records."""
    for one in operators:
        name = one.name.partition(OPERATOR)[2]
        library.define(f"{name}({', '.join(one.parameters)}) -> Tensor")
        library.impl(name, _operator(one), "CPU")


def _operator(function):
    names = [name_of(one) for one in function.parameters]

    def run(*values, **named):
        return called(function.name, {**dict(zip(names, values, strict=False)), **named})

    return run
