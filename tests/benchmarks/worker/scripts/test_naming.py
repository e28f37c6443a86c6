"""ClosureNames of timed closures: what they hold, and what they must not."""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import Any

import torch

from benchmarks.worker.scripts.interception import LONGEST, ClosureNames, TimedName, function_name, printed


def here(file: str) -> bool:
    return file == __file__


def timed(names: ClosureNames, function: Any = None, more: dict[str, Any] | None = None) -> TimedName:
    """A timer: it names what it is called for by the frame that calls it."""
    return names.of(sys._getframe(1), function, more)


def bench(names: ClosureNames, M: int, dtype: torch.dtype, provider: str, x: torch.Tensor) -> TimedName:
    return timed(names, lambda: x)


def test_arguments_and_loops_are_the_parameters_and_a_provider_is_the_backend() -> None:
    found = []
    names = ClosureNames(here)
    for size, (rows, columns) in [(1, (2, 3))]:
        found.append(bench(names, 64, torch.bfloat16, "cublas", torch.ones(2)))
        measured_ms = 0.123 * size * rows * columns
        found.append(timed(names))
    assert found[0].backend == "cublas"
    assert found[0].case.endswith("bench:size=1,rows=2,columns=3,M=64,dtype=bf16")
    assert "measured_ms" not in found[1].case
    assert str(measured_ms) not in found[1].case


def test_the_second_of_a_name_gets_a_number_and_lines_do_not_count() -> None:
    names = ClosureNames(here)
    first = timed(names)

    second = timed(names)
    assert second == TimedName(first.backend, f"{first.case}#2")


@dataclasses.dataclass
class Input:
    x: int
    kernel_provider: str
    extra: dict[str, Any]


def of_object(names: ClosureNames, input: Input) -> TimedName:
    return timed(names)


def test_fields_of_an_object_are_parameters() -> None:
    found = of_object(ClosureNames(here), Input(4, "liger", {"hidden": 8, "weights": torch.ones(2)}))
    assert found.backend == "liger"
    assert found.case.endswith("x=4,hidden=8")


def test_a_timed_functions_own_name_is_the_backend_where_nobody_says_a_provider() -> None:
    def run_ck(x: int) -> int:
        return x

    assert timed(ClosureNames(here), functools.partial(run_ck, 3)).backend == "run_ck"
    assert timed(ClosureNames(here), lambda: 0, {"provider": "lib", "label": "a b"}).backend == "lib"
    assert "label=a-b" in timed(ClosureNames(here), None, {"label": "a b"}).case


def test_long_names_are_cut_and_stay_apart() -> None:
    names = ClosureNames(here)
    found = {timed(names, None, {f"parameter_{i}_{j}": j for j in range(30)}).case for i in range(3)}
    assert len(found) == 3
    assert max(map(len, found)) <= LONGEST


def test_values_that_are_no_parameters_are_not_printed() -> None:
    assert printed(torch.float16) == "fp16"
    assert printed((4, 8, torch.bfloat16)) == "4x8xbf16"
    assert printed("a/b c") == "a-b-c"
    assert printed(torch.ones(3)) == printed(object()) == printed(None) == printed([]) == printed("x" * 60) == ""
    assert "/" not in printed("torch.nn/x")


def test_function_name_looks_inside() -> None:
    assert function_name(functools.partial(functools.partial(max, 1), 2)) == "max"
    assert function_name(torch.nn.Linear(2, 2)) == "Linear"
