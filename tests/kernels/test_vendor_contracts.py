"""Each adapter of another library against the recorded function: its names, its dtypes, its layouts, its result; and a
change upstream is one sentence.
"""

from __future__ import annotations

import dataclasses
import re
import sys

import pytest
import torch

from kernels._shared import libraries
from kernels.grouped_gemm import autotune, grouped_gemm_dgrad, grouped_gemm_forward, grouped_gemm_wgrad
from kernels.grouped_gemm import vendors as grouped
from kernels.moe_gemm2_mxfp4 import amd_layouts as layouts
from kernels.moe_gemm2_mxfp4 import amd_vendors, moe_gemm2_mxfp4
from kernels.numerics import compare
from kernels.spec import Case, Place, Unsupported
from tests.kernels.vendor_stubs import OPERATOR, RECORDED, installed, name_of, scales_at

PRODUCTS = {"forward": grouped_gemm_forward, "dgrad": grouped_gemm_dgrad, "wgrad": grouped_gemm_wgrad}
ENTRIES = {
    value.name: value
    for module in (grouped, amd_vendors)
    for value in vars(module).values()
    if isinstance(value, libraries.Written)
}
GROUPED = ("ck", "hipblaslt_grouped", "gmm", "aiter_gmm")
PRIMUS_TURBO = [name for name in RECORDED if name.startswith("primus_turbo")]


def grouped_case(product="forward", arch="gfx942"):
    case = Case("t", dtype="bf16", G=5, M=8, N=32, K=48, routing="extreme").at(Place(arch=arch, compute_units=304))
    return case, PRODUCTS[product].function("inputs")(case, 0)


def moe_case(block=32, arch="gfx950", tokens=5):
    place = Place(arch=arch, compute_units=256)
    case = Case("t", dtype="mxfp4", M=tokens, N=256, K=256, E=4, topk=3, BM=block).at(place)
    return case, moe_gemm2_mxfp4.function("inputs")(case, 0)


def earlier(name):
    """A record with the signature of the earlier versions."""
    [parameters] = RECORDED[name].earlier
    return dataclasses.replace(RECORDED[name], parameters=parameters)


def right(kernel, case, x, call):
    """The output of two calls, the first of them overwritten, is what the reference has."""
    first = call()
    if not getattr(call, "functional", False):
        first.fill_(float("nan"))
        assert call().data_ptr() == first.data_ptr()
    verdict = compare(call(), kernel.function("reference")(case, x), kernel.tolerance_for(case))
    assert verdict.ok, verdict.why


# ---- every adapter is right ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("product", sorted(PRODUCTS))
@pytest.mark.parametrize("name", GROUPED)
def test_a_grouped_adapter_does_what_the_recorded_function_makes_of_it(product, name, tmp_path):
    case, x = grouped_case(product)
    assert 0 in grouped.host_sizes(case), "an expert without a row"
    kernel = PRODUCTS[product]
    with installed(tmp_path, RECORDED):
        call = kernel.backends[name].build(case, x)
        right(kernel, case, x, call)
        assert getattr(call, "functional", False) == (name == "ck")


@pytest.mark.parametrize("versions", ["0.3.0", "0.4.0"])
@pytest.mark.parametrize("product", sorted(PRODUCTS))
@pytest.mark.parametrize("name", ["ck", "hipblaslt_grouped"])
def test_earlier_versions_of_primus_turbo_are_right_too(product, name, versions, tmp_path):
    names = [one for one in PRIMUS_TURBO if versions == "0.3.0" or "hipblaslt" in one]
    older = {one: earlier(one) if one in names else RECORDED[one] for one in PRIMUS_TURBO}
    assert len(older["primus_turbo_cpp_extension::ck_grouped_gemm"].parameters) == (7 if versions == "0.3.0" else 10)
    case, x = grouped_case(product)
    with installed(tmp_path, older):
        call = PRODUCTS[product].backends[name].build(case, x)
        right(PRODUCTS[product], case, x, call)
        assert call.functional, "no output can be given"


@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("name", sorted(amd_vendors.BASELINES))
def test_an_fp4_adapter_does_what_the_recorded_kernel_makes_of_it(name, block, tmp_path):
    case, x = moe_case(block)
    backend = moe_gemm2_mxfp4.backends[name]
    with installed(tmp_path, RECORDED):
        if block == 16 and name in ("aiter_ck", "flydsl_stage2"):
            with pytest.raises(Unsupported, match="for BM 32, 64, 128, not for 16; aiter_mxmoe_atomic takes 16 to 128"):
                backend.build(case, x, **backend.knobs(case, "gfx950"))
            return
        right(moe_gemm2_mxfp4, case, x, backend.build(case, x, **backend.knobs(case, "gfx950")))


def test_autotune_takes_a_functional_library_for_what_it_is(tmp_path, monkeypatch):
    """The choice is `ck`, whose every output is new: the harness must be told."""
    case, x = grouped_case("forward")
    kernel = PRODUCTS["forward"]
    monkeypatch.setattr(kernel, "backends", {name: kernel.backends[name] for name in ("ck", "aiter_gmm", "autotune")})
    for wanted, expected in (("ck", True), ("aiter_gmm", False)):
        monkeypatch.setattr(autotune, "_fastest", lambda calls, case, wanted=wanted: ["ck", "aiter_gmm"].index(wanted))
        with installed(tmp_path, RECORDED):
            call = kernel.backends["autotune"].build(case, x)
            call.tune()
            assert (call.choice, getattr(call, "functional", False)) == (wanted, expected)
            right(kernel, case, x, call)


# ---- a change upstream is a sentence -------------------------------------------------------------------------------

USERS = {
    "primus_turbo_cpp_extension::ck_grouped_gemm": ("forward", "ck"),
    "primus_turbo_cpp_extension::ck_grouped_gemm_variable_k": ("wgrad", "ck"),
    "primus_turbo_cpp_extension::hipblaslt_grouped_gemm": ("dgrad", "hipblaslt_grouped"),
    "grouped_gemm.backend.gmm": ("wgrad", "gmm"),
    "aiter.ops.triton.gmm.gmm": ("dgrad", "aiter_gmm"),
    "aiter.ops.triton.gmm.ptgmm": ("wgrad", "aiter_gmm"),
    "aiter.ops.moe_op.ck_moe_stage2_fwd": (32, "aiter_ck"),
    "aiter.ops.flydsl.kernels.mxmoe_dispatcher.mxfp4_moe_gemm2": (16, "aiter_mxmoe_atomic"),
    "aiter.ops.flydsl.moe_kernels._run_moe_reduction": (64, "aiter_mxmoe_reduce"),
    "aiter.ops.flydsl.mxfp4_gemm2_kernels.flydsl_mxfp4_gemm2": (16, "flydsl_gemm2"),
    "aiter.ops.moe_mxfp4_aux.mxfp4_moe_scatter_reduce": (128, "flydsl_gemm2"),
    "aiter.ops.flydsl.moe_kernels.flydsl_moe_stage2": (32, "flydsl_stage2"),
}


def built(name, changed, folder):
    """The call of the adapter that uses a function, where the function is as in `changed`."""
    which, backend = USERS[name]
    kernel = PRODUCTS.get(which, moe_gemm2_mxfp4)
    case, x = grouped_case(which) if which in PRODUCTS else moe_case(which)
    with installed(folder, {**RECORDED, name: changed}):
        return kernel.backends[backend].build(case, x, **kernel.backends[backend].knobs(case, case.place.arch))


def refusal(name, changed, folder):
    """What the adapter that calls a function says when the function has changed."""
    with pytest.raises(Unsupported) as refused:
        built(name, changed, folder)
    return str(refused.value)


def test_every_function_that_an_adapter_calls_is_recorded_at_the_state_it_names():
    assert set(ENTRIES) == set(RECORDED) == set(USERS)
    for name, entry in ENTRIES.items():
        known = {field: value for field, value in dataclasses.asdict(entry).items() if field != "module"}
        assert {field: getattr(RECORDED[name], field) for field in known} == known
        assert re.fullmatch(r"[0-9a-f]{40}", entry.commit)
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", entry.date)


@pytest.mark.parametrize("name", sorted(USERS))
def test_a_renamed_argument_is_named_with_the_function_and_the_state_it_was_written_for(name, tmp_path):
    record = RECORDED[name]
    needed = [one for one in record.parameters if "=" not in one and one != "*"]  # every adapter must give them
    for index, parameter in enumerate(needed):
        argument, renamed = name_of(parameter), [f"{one}_new" if one == parameter else one for one in record.parameters]
        changed = dataclasses.replace(record, parameters=tuple(renamed))
        said = refusal(name, changed, tmp_path / str(index))
        assert said.startswith(f"{name} of ")
        assert f"has no argument {argument} and needs the argument {argument}_new (it takes " in said
        assert f"written for {record.repository} {record.path} of {record.date} ({record.commit[:8]})" in said


@pytest.mark.parametrize("name", sorted(USERS))
def test_an_argument_more_is_named_and_one_with_a_default_is_no_matter(name, tmp_path):
    record = RECORDED[name]
    new = [*(["*"] if "*" not in record.parameters else []), "int mesh" if OPERATOR in name else "mesh"]
    said = refusal(name, dataclasses.replace(record, parameters=(*record.parameters, *new)), tmp_path)
    assert "needs the argument mesh (it takes " in said
    optional = (*record.parameters, *new[:-1], f"{new[-1]}=0")
    built(name, dataclasses.replace(record, parameters=optional), tmp_path / "optional")


# ---- what is absent, or another project ----------------------------------------------------------------------------


def build(name, arch="gfx942"):
    if name in moe_gemm2_mxfp4.backends:
        case, x = moe_case(arch=arch)
        return moe_gemm2_mxfp4.backends[name].build(case, x)
    case, x = grouped_case(arch=arch)
    return grouped_gemm_forward.backends[name].build(case, x)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ck", "primus_turbo.pytorch cannot be imported .*; install Primus-Turbo, built for this ROCm"),
        ("hipblaslt_grouped", "primus_turbo.pytorch cannot be imported"),
        ("gmm", "the branch rocm of github.com/caaatch22/grouped_gemm; `pip install grouped_gemm` is for CUDA"),
        ("aiter_gmm", "aiter is not installed; `pip install amd-aiter` .the distribution aiter is another project"),
    ],
)
def test_what_is_absent_says_what_to_install(name, said):
    with pytest.raises(Unsupported, match=said):
        build(name)


def test_on_cuda_gmm_names_the_package_for_cuda():
    with pytest.raises(Unsupported, match="gmm of grouped_gemm .* cannot be imported .*; pip install grouped_gemm"):
        build("gmm", "sm_90")
    for name in ("ck", "hipblaslt_grouped", "aiter_gmm"):
        with pytest.raises(Unsupported, match="needs a GPU of AMD, this is sm_90"):
            build(name, "sm_90")
    with pytest.raises(Unsupported, match="FP4 matrix units of gfx950 .MI350X, MI355X., this is gfx942"):
        build("aiter_mxmoe_atomic", "gfx942")


@pytest.mark.parametrize("name", ["aiter_gmm", "aiter_ck", "aiter_mxmoe_reduce", "flydsl_gemm2"])
def test_the_other_project_called_aiter_is_recognised(name, tmp_path, monkeypatch):
    """The package of PyPI: modules of that name, but no operators; it would be imported without an error."""
    package = tmp_path / "aiter"
    package.mkdir()
    (package / "__init__.py").write_text("async def map_aiter(function, aiter): ...\n")
    about = tmp_path / "aiter-0.13.20191203.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: aiter\nVersion: 0.13.20191203\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Unsupported) as refused:
        build(name, "gfx942" if name == "aiter_gmm" else "gfx950")
    said = str(refused.value)
    assert "(aiter 0.13.20191203) is another project; AMD's is amd-aiter: `pip uninstall aiter`" in said
    assert "aiter" not in sys.modules, "it is recognised without being imported"


def test_a_library_without_the_operator_says_from_which_version_on_it_has_it(tmp_path):
    only = {"grouped_gemm.backend.gmm": RECORDED["grouped_gemm.backend.gmm"]}
    said = "registers no primus_turbo_cpp_extension::ck_grouped_gemm; 0.3.0 or later does"
    with installed(tmp_path, only), pytest.raises(Unsupported, match=said):
        build("ck")


def test_a_library_that_breaks_while_it_is_loaded_is_unsupported(tmp_path):
    said = "flydsl 0.4.2 has no make_view.; it needs ROCm and `pip install amd-aiter"
    with installed(tmp_path, RECORDED):
        module = tmp_path / "aiter" / "ops" / "flydsl" / "kernels" / "mxmoe_dispatcher.py"
        module.write_text("raise AttributeError('flydsl 0.4.2 has no make_view')\n")
        with pytest.raises(Unsupported, match=said):
            build("aiter_mxmoe_atomic", "gfx950")


def test_a_lost_device_is_no_refusal(monkeypatch):
    """After an illegal access the error is passed on, so that the harness starts new processes."""

    def lost():
        raise RuntimeError("HIP error: an illegal memory access was encountered")

    def fails():
        raise RuntimeError("no instance")

    with pytest.raises(Unsupported, match="ck refuses this case: no instance"):
        libraries.tried("ck", fails)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        libraries.tried("ck", lambda: torch.zeros(1))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        libraries.tried("ck", fails)


# The layouts of AMD's FP4 kernels: every value stands where the kernel's own addressing reads it.


def numbered(*shape):
    """Bytes of which neighbours differ in every direction."""
    count = torch.arange(int(torch.tensor(shape).prod()))
    return ((count * 167 + count // 256 * 29) % 251).to(torch.uint8).view(shape)


def test_every_scale_of_a_weight_is_where_the_kernel_reads_it_though_its_last_rows_are_no_whole_tile():
    rows, depth = 100, 512
    scales = numbered(rows, depth // 32)
    tiled = layouts.tiled_scales(scales, layouts.PADDED_SCALE_ROWS)
    assert tiled.shape == (256, depth // 32)
    line = torch.arange(rows)
    assert torch.equal(scales_at(tiled, line // 32, line, depth), scales)


def test_what_the_layout_cannot_hold_is_named():
    with pytest.raises(ValueError, match=r"weights are \[24, 128\]; the layout needs N % 16 == 0 and K % 128 == 0"):
        layouts.tiled_weights(numbered(1, 24, 64))
    with pytest.raises(ValueError, match=r"weights are \[16, 192\]"):
        layouts.tiled_weights(numbered(1, 16, 96))
