"""Random values that were drawn from a state of the generator before are copied, and nobody can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from benchmarks.worker.scripts import drawn


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was really drawn, with methods that remember."""
    names: list[str] = []
    for name in drawn.FILLS:
        original = getattr(torch.Tensor, name)

        def drawing(tensor: Any, *args: Any, name: str = name, by: Any = original, **kwargs: Any) -> Any:
            names.append(name)
            return by(tensor, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, drawing)
    monkeypatch.setattr(drawn, "LEAST", 100)
    drawn.of_torch(torch, lambda: False)
    return names


def layers() -> list[torch.Tensor]:
    """Weights of two layers and what is drawn after them."""
    torch.manual_seed(3)
    linear, embedding = torch.nn.Linear(20, 30), torch.nn.Embedding(20, 10)
    return [linear.weight.detach(), linear.bias.detach(), embedding.weight.detach(), torch.rand(4)]


def test_layers_of_the_same_state_are_the_same_and_drawn_once(counted: list[str]) -> None:
    first = layers()
    small = counted.count("uniform_") - 1
    drawn_once = len(counted)
    again = layers()
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert len(counted) - drawn_once == small  # the bias, which is too small
    assert first[0].data_ptr() != again[0].data_ptr()
    again[0].zero_()
    assert torch.equal(layers()[0], first[0])


@pytest.mark.parametrize(
    "fill",
    [
        lambda x: x.uniform_(0, 2),
        lambda x: x.normal_(std=2.0),
        lambda x: x.double().uniform_(),
        lambda x: x[:10].uniform_(),
        lambda x: x.uniform_(generator=torch.Generator()),
        lambda x: x.t().uniform_(),
    ],
    ids=["bounds", "normal", "type", "shape", "generator", "layout"],
)
def test_another_question_is_drawn(counted: list[str], fill: Callable[[torch.Tensor], Any]) -> None:
    torch.manual_seed(3)
    torch.empty(20, 20).uniform_()
    torch.manual_seed(3)
    fill(torch.empty(20, 20))
    assert len(counted) == 2


def test_what_is_more_than_is_held_is_drawn(counted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "MOST_BYTES", 1000)
    for _ in range(2):
        torch.manual_seed(3)
        torch.empty(20, 20).uniform_()
    assert len(counted) == 2
