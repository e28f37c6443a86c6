"""What a timed closure calls, as text: what can be told is what it does, and nothing else is told."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from benchmarks.worker.scripts import timers
from benchmarks.worker.scripts.closure import told
from tests.benchmarks.worker.scripts import shapes

X, W = torch.ones(4, 8), torch.full((8, 3), 2.0)
EPS = 1e-5


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def closures(
    x: torch.Tensor, w: torch.Tensor, dtype: torch.dtype, fn: Any = torch.relu
) -> dict[str, Callable[[], Any]]:
    size, fn = 3, torch.relu

    def product() -> torch.Tensor:
        """Returns it."""
        return x @ w

    return {
        "torch.relu(x0)": lambda: fn(x),
        "torch.softmax(x0, dim=-1)": lambda: torch.softmax(x, dim=-1),
        "torch.nn.functional.layer_norm(x0, (8,), eps=1e-05)": lambda: F.layer_norm(x, (8,), eps=EPS),
        "x0 @ x1": product,
        "x0.to(torch.float16)": lambda: x.to(dtype),
        "x0.narrow(0, 0, 3)": lambda: x.narrow(0, 0, size),
        "tests.benchmarks.worker.scripts.test_calls.double(x0)": lambda: double(x),
        "tests.benchmarks.worker.scripts.shapes.wide(x0, [1, 2])": functools.partial(shapes.wide, x, [1, 2]),
        "torch.matmul(x0, x1) + 1": timers.statement(
            "torch.matmul(a, b) + one", "one = 1", {"a": x, "b": w, "torch": torch}
        ),
    }


@pytest.mark.parametrize(("text", "call"), closures(X, W, torch.float16).items())
def test_what_is_told_does_what_the_closure_does(text: str, call: Callable[[], Any]) -> None:
    found, modules = told(call, [X, W])
    assert found == text
    assert all(text.startswith(one) or not modules for one in modules)
    names = {"x0": X, "x1": W, "torch": torch, "tests": __import__("tests.benchmarks.worker.scripts.test_calls")}
    assert torch.equal(eval(found, names), call())


def untold(x: torch.Tensor) -> dict[str, Callable[[], Any]]:
    model, other, held = torch.nn.Linear(8, 2), torch.ones(3), [lambda: torch.relu(x), lambda: torch.tanh(x)]

    def two() -> torch.Tensor:
        y = x * 2
        return y + 1

    def own(y: torch.Tensor) -> torch.Tensor:
        return y

    return {
        "an object": lambda: model(x),
        "a tensor that is none of its inputs": lambda: x + other,
        "two statements": two,
        "a function of a function": lambda: own(x),
        "a choice": lambda: x if x.sum() > 0 else other,
        "a function in a list": lambda: held[0](),
        "a value": lambda: x,
        "a callable object": model.forward,
    }


@pytest.mark.parametrize(("what", "call"), untold(X).items())
def test_nothing_is_told_of(what: str, call: Callable[[], Any]) -> None:
    assert told(call, [X]) == ("", [])


def test_lambdas_of_one_line_are_told_apart() -> None:
    first, second = (lambda: torch.relu(X)), (lambda: torch.tanh(X))
    assert (told(first, [X]), told(second, [X])) == (("torch.relu(x0)", ["torch"]), ("torch.tanh(x0)", ["torch"]))
