"""Write what AMD's pseudocode makes of every operation: `python -m tests.benchmarks.emulation.recorded`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.emulation.waves import EXEC
from tests.benchmarks.emulation import instructions

ANSWERS = Path(__file__).with_name("pseudocode.npz")
EVERY_LANE = ("V_PERMLANE16_SWAP_B32", "V_PERMLANE32_SWAP_B32")


def cases(arch: str) -> list[instructions.Case]:
    """All of gfx942; of gfx950 those that it alone has, or that differ there."""
    known = instructions.known(arch)[0]
    if arch == "gfx942":
        return list(known)
    of_gfx942 = {str(case) for case in cases("gfx942")}
    return [one for one in known if str(one) not in of_gfx942 or any(kind in one.name for kind in ("FP8", "BF8"))]


def before(case: instructions.Case) -> instructions.State:
    given = instructions.before(case, 2, 0)
    if case.name in EVERY_LANE:
        given.s[EXEC : EXEC + 2] = 0xFFFFFFFF
    return given


def main() -> None:
    written = {}
    for arch in ("gfx942", "gfx950"):
        answers = {}
        for case in cases(arch):
            given = before(case)
            answers[str(case)] = instructions.answer(case, given, instructions.by_pseudocode(case, given, arch))
        written |= {f"{arch} cases": list(answers), f"{arch} words": np.concatenate(list(answers.values()))}
        written[f"{arch} lengths"] = np.array([len(one) for one in answers.values()], np.int32)
    np.savez_compressed(ANSWERS, **written)


if __name__ == "__main__":
    main()
