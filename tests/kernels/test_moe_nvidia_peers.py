"""The adapters of triton_kernels and humming: against stand-ins with the libraries' signatures that compute slowly what
the libraries document, and against what is wrong or missing."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from kernels.moe_gemm2_mxfp4 import formats, moe_gemm2_mxfp4, nvidia_vendors
from kernels.numerics import compare
from kernels.spec import Place, Tolerance, Unsupported
from tests.kernels.ranks import run_alone
from tests.kernels.test_moe_gemm2_mxfp4 import inputs_of, small

HOPPER = Place(device="cpu", arch="sm_90", compute_units=132)
CLOSE = Tolerance(norm=8e-3, peak=0.1)
"""Rows are rounded to bf16 once before their sum."""


def on_hopper(**changes):
    return small(**changes).at(HOPPER)


def module(name, **content):
    found = types.ModuleType(name)
    found.__dict__.update(content)
    sys.modules[name] = found
    return found


# ---- rows and their formats ------------------------------------------------------------------------------------------


def test_e4m3_holds_mxfp4_rows_exactly():
    packed, scales = formats.quantise(torch.randn(64, 512, generator=torch.Generator().manual_seed(0)) * 3)
    values = formats.dequantise(packed, scales)
    codes, scale = nvidia_vendors.as_e4m3(values.to(torch.bfloat16))
    assert torch.equal(codes.float() * scale, values)
    assert codes.float().abs().max() <= 448
    assert nvidia_vendors.as_e4m3(torch.zeros(1, 32))[1].item() == 1.0


def test_blocks_of_rows_belong_to_one_expert_and_are_filled_up():
    case = on_hopper(M=7, topk=3, E=6)
    x = inputs_of(case)
    order, at = nvidia_vendors._humming_rows(case, x, "indexed", 8)
    assert at.tolist() == list(range(21))
    ids = order["sorted_ids"].view(-1, 8)
    assert int(order["num_tokens_padded"]) == ids.numel()
    owner = {}
    for row, packed in enumerate(x["ids"].tolist()):
        if packed & 0xFFFFFF < case.M:
            owner[(packed & 0xFFFFFF) * 3 + (packed >> 24)] = int(x["experts"][row // case.BM])
    seen = []
    for expert, block in zip(order["expert_ids"].tolist(), ids.tolist(), strict=True):
        real = [one for one in block if one != 21]
        assert all(owner[one] == expert for one in real)
        seen += real
    assert sorted(seen) == list(range(21))


def test_rows_in_the_order_of_experts_are_found_again():
    case = on_hopper(M=7, topk=3, E=6)
    x = inputs_of(case)
    order, at = nvidia_vendors._humming_rows(case, x, "grouped_contiguous", 8)
    rows, slots = nvidia_vendors._rows(case, x)
    assert torch.equal(slots[at.long()], torch.arange(21))
    ends = order["expert_layout"].tolist()
    owners = x["experts"].long()[rows // case.BM].tolist()
    assert owners == [e for e in range(6) for _ in range(ends[e + 1] - ends[e])]


# ---- the calls, with stand-ins ---------------------------------------------------------------------------------------


def dequantised(w, w_scale):
    """[E, K, N] fp32."""
    return formats.dequantise(w, w_scale).transpose(-1, -2)


def stand_in_for_triton_kernels():
    """Signatures of tokenspeed-triton-kernels 1.0.0.post20260510; matmul as its matmul_torch documents it."""

    class PrecisionConfig:
        def __init__(self, b_mx_scale=None, b_microblock_size=None, out_dtype=None):
            assert (b_microblock_size, out_dtype) == (32, torch.bfloat16)
            self.scale = b_mx_scale

    def matmul(a, b, bias, a_ragged_metadata=None, b_ragged_metadata=None, gather_indx=None, scatter_indx=None,
               precision_config=None, betas=None, gammas=None, out_alpha=None, c=None):  # fmt: skip
        w = dequantised(b.transpose(-1, -2), precision_config.scale.transpose(-1, -2))
        assert a.dtype == torch.bfloat16
        assert int(a_ragged_metadata.sum()) == a.shape[0]
        start = 0
        for expert, count in enumerate(a_ragged_metadata.tolist()):
            stop = start + count
            rows = a[start:stop].float() @ w[expert] * gammas[start:stop, None]
            c[scatter_indx[start:stop].long()] = rows.to(torch.bfloat16)
            start = stop

    def wrap_torch_tensor(torch_tensor, dtype=None, shape=None, shape_max=None, layout=None):
        assert torch_tensor.stride(-2) == 1
        return torch_tensor

    module("triton_kernels")
    module("triton_kernels.matmul", matmul=matmul, PrecisionConfig=PrecisionConfig)
    module(
        "triton_kernels.tensor", FP4="fp4", wrap_torch_tensor=wrap_torch_tensor,
        convert_layout=lambda tensor, layout: tensor, make_ragged_tensor_metadata=lambda slice_sizes, rows: slice_sizes,
    )  # fmt: skip
    module("triton_kernels.tensor_details")
    module(
        "triton_kernels.tensor_details.layout",
        make_default_matmul_mxfp4_w_layout=lambda mx_axis: None,
        make_default_matmul_mxfp4_w_scale_layout=lambda mx_axis, num_warps: None,
    )


def stand_in_for_humming():
    """Signatures of humming-kernels 0.1.19."""

    class LayerConfig:
        def __init__(self, *, shape_n, shape_k, num_experts, a_dtype, b_dtype, c_dtype, bs_dtype,
                     weight_scale_group_size):  # fmt: skip
            assert (b_dtype, c_dtype, bs_dtype, weight_scale_group_size) == (
                "float4e2m1", "bfloat16", "float8e8m0", 32,
            )  # fmt: skip
            self.a_dtype = a_dtype

        def to_str(self):
            return "layer"

    class ComputeConfig:
        def __init__(self, *, gemm_type):
            self.gemm_type = gemm_type

        def to_str(self):
            return self.gemm_type

    class HummingKernel:
        @classmethod
        def prepare_kernels(cls, layer_config, compute_config=None, tuning_config=None, device=None):
            return compute_config

    def get_heuristics_config(layer_config, shape_m=None, use_f16_accum=False, gemm_type="dense", device=None):
        return {"block_shape": (8, 128, 64)}

    def transform_humming_tensors(config, tensors, already_padded=False):
        w = dequantised(tensors["weight"].view(torch.uint8), tensors["weight_scale"].view(torch.uint8))
        tensors["weight"].zero_()  # it may work in place
        return {"weight": w, "weight_scale": tensors["weight_scale"]}

    def launch_kernel(*, configs, inputs, weight, weight_scale, weight_scale_2=None, input_scale=None, outputs=None,
                      sorted_ids=None, expert_ids=None, num_tokens_padded=None, expert_layout=None, locks=None,
                      top_k=1, valid_shape_m=0):  # fmt: skip
        values = inputs.float() * (1 if input_scale is None else input_scale)
        if configs == "indexed":
            block = sorted_ids.numel() // expert_ids.numel()
            for expert, ids in zip(expert_ids.tolist(), sorted_ids.view(-1, block).long(), strict=True):
                real = ids[ids < inputs.shape[0]]
                outputs[real] = (values[real] @ weight[expert]).to(torch.bfloat16)
        else:
            for expert, (start, stop) in enumerate(zip(expert_layout[:-1], expert_layout[1:], strict=True)):
                outputs[start:stop] = (values[start:stop] @ weight[expert]).to(torch.bfloat16)

    module("humming")
    module("humming.config", LayerConfig=LayerConfig, ComputeConfig=ComputeConfig)
    module("humming.kernel")
    module("humming.kernel.humming", HummingKernel=HummingKernel)
    module("humming.ops", launch_kernel=launch_kernel)
    module("humming.tune", get_heuristics_config=get_heuristics_config)
    module("humming.transform", transform_humming_tensors=transform_humming_tensors)


def called_with_stand_ins():
    stand_in_for_triton_kernels()
    stand_in_for_humming()
    case = on_hopper(M=5, N=64, E=4, topk=2, distribution="normal")
    x = inputs_of(case)
    before = {name: tensor.clone() for name, tensor in x.items()}
    expected = moe_gemm2_mxfp4.function("reference")(case, x)
    calls = [build(case, x) for build, _ in nvidia_vendors.BASELINES.values()]
    calls += [
        build(case, x, "grouped_contiguous") for build in (nvidia_vendors.humming_w4a16, nvidia_vendors.humming_w4a8)
    ]
    for call in calls:
        out = call()
        out.fill_(float("nan"))
        assert call().data_ptr() == out.data_ptr()
        verdict = compare(out, expected, CLOSE)
        assert verdict.ok, (call, verdict.why)
    assert all(torch.equal(x[name], before[name]) for name in x)


@pytest.mark.slow
def test_the_calls_compute_the_product_with_its_sum_over_the_slots():
    run_alone("tests.kernels.test_moe_nvidia_peers", "called_with_stand_ins", TRITON_INTERPRET="1")


def changed_signatures():
    stand_in_for_triton_kernels()
    stand_in_for_humming()
    case = on_hopper(M=5, N=64, E=4, topk=2)
    x = inputs_of(case)
    sys.modules["triton_kernels.matmul"].matmul = lambda a, b, bias, routing: None
    with pytest.raises(
        Unsupported, match=r"triton_kernels.matmul.matmul of tokenspeed-triton-kernels .* has no argument"
    ):
        nvidia_vendors.triton_kernels(case, x)
    sys.modules["humming.ops"].launch_kernel = lambda *, configs, inputs, plan: None
    with pytest.raises(Unsupported, match=r"humming.ops.launch_kernel .* needs the argument plan"):
        nvidia_vendors.humming_w4a16(case, x)

    def refuses(**_):
        raise AssertionError("shape_k must be a multiple of 128")

    sys.modules["humming.ops"].launch_kernel = refuses
    with pytest.raises(Unsupported, match="humming-kernels .* refuses this case: shape_k must be"):
        nvidia_vendors.humming_w4a16(case, x)


@pytest.mark.slow
def test_a_changed_signature_and_a_refusal_are_one_sentence():
    run_alone("tests.kernels.test_moe_nvidia_peers", "changed_signatures", TRITON_INTERPRET="1")


@pytest.mark.parametrize("name", nvidia_vendors.BASELINES)
def test_a_missing_library_is_named_with_its_pip_name(name):
    build, (distribution,) = nvidia_vendors.BASELINES[name]
    with pytest.raises(Unsupported, match=rf"{distribution} .* cannot be imported .*`pip install {distribution}=="):
        build(on_hopper(), inputs_of(small()))
    with pytest.raises(Unsupported, match=rf"{distribution} is called for sm_90, whose layouts it has; this is gfx950"):
        build(small().at(Place(device="cpu", arch="gfx950")), {})
