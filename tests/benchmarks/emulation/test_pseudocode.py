"""Is the emulator right?  Every operation of the scalar and vector ALU that it knows, against AMD's pseudocode.

pseudocode.npz has the answers at 128 operands of each form, of an interpreter of the text that shares nothing with the
executor.  `python -m tests.benchmarks.emulation.recorded` of commit 664f88e7 wrote it, and writes those of a new one.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.emulation.rounding import fused
from benchmarks.emulation.waves import EXEC
from tests.benchmarks.emulation import instructions
from tests.benchmarks.emulation.instructions import TARGET, Case

APART = {
    "V_MED3_F16": (0.5, "zeros of both signs: the pseudocode's takes the sign of whichever comes first"),
    "V_MED3_F32": (0.5, "zeros of both signs: the pseudocode's takes the sign of whichever comes first"),
    "V_RSQ_F16": (1, "the pseudocode rounds the root before it divides"),
    "V_RSQ_F32": (1, "the pseudocode rounds the root before it divides"),
    "V_RSQ_F64": (1, "the executor rounds the root before it divides; the hardware's is an estimate"),
    "V_EXP_F32": (1, "both take a double's power and round it"),
    "V_LOG_F32": (1, "both take a double's logarithm and round it"),
    "V_SIN_F16": (1, "both take a double's sine; in units of 2^-10, as all of the result's error is absolute"),
    "V_SIN_F32": (1, "both take a double's sine; in units of 2^-23"),
    "V_COS_F16": (1, "both take a double's cosine; in units of 2^-10"),
    "V_COS_F32": (1, "both take a double's cosine; in units of 2^-23"),
}
"""Operations whose result may differ from the pseudocode's: by how many units in the last place, why."""

EVERY_LANE = ("V_PERMLANE16_SWAP_B32", "V_PERMLANE32_SWAP_B32")
"""Their pseudocode does not say what inactive lanes do (they keep their values): compared where all are active."""


def difference(case, arch, words):
    """What the executor does otherwise than the pseudocode at 128 operands of two waves; None if it is nothing."""
    given = instructions.before(case, 2, 0)
    if case.name in EVERY_LANE:
        given.s[EXEC : EXEC + 2] = 0xFFFFFFFF
    ours, theirs = instructions.by_executor(case, given, arch), instructions.after_pseudocode(case, given, words)
    told = []
    places = slice(TARGET, TARGET + case.words("vdst"))
    apart = instructions.distance(case, ours.v[places], theirs.v[places])
    if apart.max() > APART.get(case.name, (0, ""))[0]:
        wave, lane = (int(one) for one in np.argwhere(apart == apart.max())[0][:2])
        sources = {f"v{register}": f"{given.v[register, wave, lane]:#x}" for register in (10, 11, 20, 21, 30, 31)}
        told.append(f"{ours.v[places, wave, lane]} for {theirs.v[places, wave, lane]} of {sources}")
    others = np.ones(512, np.bool_)
    others[places] = False
    if not np.array_equal(ours.v[others], theirs.v[others]):
        told.append("another vector register")
    for register, wave in np.argwhere(ours.s != theirs.s)[:1]:
        told.append(f"s{register} is {ours.s[register, wave]:#x} for {theirs.s[register, wave]:#x}")
    if not np.array_equal(ours.scc, theirs.scc):
        told.append("SCC")
    return f"{case}: {'; '.join(told)}" if told else None


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_the_executor_computes_what_the_pseudocode_says(arch):
    answers, cases = instructions.answers(arch), {str(case): case for case in instructions.known(arch)[0]}
    wrong = [told for name, words in answers.items() if (told := difference(cases[name], arch, words))]
    assert not wrong, "\n".join(wrong)


def test_all_that_the_executor_knows_is_compared():
    of_both = instructions.answers("gfx942").keys() | instructions.answers("gfx950").keys()
    cases, unknown = instructions.known("gfx950")
    assert {str(case) for case in (*cases, *instructions.known("gfx942")[0])} == of_both
    assert len({case.name for case in cases}) >= 600, "operations with pseudocode"
    assert not {name.split()[0] for name in unknown} & {"V_ADD_F32", "V_FMA_F64", "S_ADD_U32", "V_CVT_PK_FP8_F32"}


def test_a_result_of_two_registers_may_lie_over_the_operands():
    wrong = []
    for case in instructions.known("gfx950")[0]:
        if case.words("vdst") == 2 and case.inst.vdst.offset >= instructions.VECTOR:
            given = instructions.before(case, 1, 0)
            apart = slice(TARGET, TARGET + 2)
            for place in (9, 10, 11, 19, 20, 21, 29, 30, 31):
                over = slice(place, place + 2)
                given.v[apart] = given.v[over]
                expected = instructions.by_executor(case, given, "gfx950").v[apart]
                found = instructions.by_executor(instructions.moved(case, place), given, "gfx950").v[over]
                wrong += [] if np.array_equal(found, expected) else [f"{case} into v[{place}:{place + 1}]"]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("name", "source", "into"), [("READ", 256, 0), ("WRITE", 0, 256), ("MOV_B32_E32", 256, 256)])
def test_accumulation_registers_are_not_the_vector_registers_of_their_numbers(name, source, into):
    from tinygrad.runtime.autogen.amd.cdna import ins

    kind, form = (ins.VOP1Op, "VOP1") if name.startswith("MOV") else (ins.VOP3POp, "VOP3P")
    op = kind[f"V_ACCVGPR_{name}"]
    case = Case(op.name.removesuffix("_E32"), form, instructions.encoded(op, form))
    given = instructions.before(case, 1, 0)
    given.v[:] = np.arange(512)[:, None, None]
    expected = given.v.copy()
    expected[into + TARGET] = source + 10
    assert np.array_equal(instructions.by_executor(case, given, "gfx942").v, expected)


def test_an_infinity_outweighs_a_product_that_is_too_large_for_fp64():
    """-inf, and not NaN: no product of finite numbers is infinite before it is rounded."""
    with np.errstate(all="ignore"):
        assert fused(np.float64([1e300]), np.float64([1e300]), np.float64([-np.inf])).tolist() == [-np.inf]
