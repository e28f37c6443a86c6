"""Random numbers of the device: drawn by the CPU, from states that have the form of a GPU's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

__tracebackhide__ = True  # pytest shows the program's frames alone

DEVICE = torch.device("cuda", 0)

FIRST_SEED = 67280421310721
"""The seed of which torch's generators begin."""

NUMBERS = 4
"""How far an operation takes the default generator: as far as the least that one takes it on a GPU."""

POSITIVE, WORD = (1 << 63) - 1, 1 << 64
"""The largest seed that the CPU's generator takes; values of a word."""


class Generator(torch._C.Generator):
    """torch.Generator, whose numbers for the device come from the CPU's generator."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """As torch makes it."""
        made = super().__new__(cls, device="cpu")
        made._device = torch.device(device)
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where it was asked for."""
        return DEVICE if self._device.type == "cuda" else self._device


class _Kind(type(torch._C.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, one: Any) -> bool:
        return isinstance(one, torch._C.Generator)


class AnyGenerator(Generator, metaclass=_Kind):
    """The same; torch's own default generator is an instance."""


class DefaultGenerator(Generator):
    """The device's own: its state is 16 bytes, a seed and an offset, which kernels of Triton take and move on.

    Each operation begins the CPU's generator anew from both, and leaves it as it was.
    """

    numbers = (FIRST_SEED, 0)

    def manual_seed(self, seed: int) -> Any:
        """Begin from a seed."""
        self.numbers = (seed % WORD, 0)
        return self

    def seed(self) -> int:
        """Begin from a random seed."""
        self.manual_seed(super().seed())
        return self.numbers[0]

    def initial_seed(self) -> int:
        """What it began from."""
        return self.numbers[0]

    def get_offset(self) -> int:
        """How many numbers were taken."""
        return self.numbers[1]

    def set_offset(self, offset: int) -> None:
        """Go to an offset."""
        self.numbers = (self.numbers[0], offset)

    def get_state(self) -> torch.Tensor:
        """The seed and the offset, as bytes of the host."""
        return torch.tensor(self.numbers, dtype=torch.uint64, device="cpu").view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> Any:
        """Go to a state."""
        seed, offset = state.cpu().view(torch.uint64).tolist()
        self.numbers = (seed, offset)
        return self

    def drawing(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        """The operation of the CPU with this generator's numbers."""

        @functools.wraps(operation, updated=())
        def drawn(*args: Any, **kwargs: Any) -> Any:
            of_host = torch.default_generator
            before = of_host.get_state()
            of_host.manual_seed(hash(self.numbers) & POSITIVE)
            self.set_offset(self.get_offset() + NUMBERS)
            try:
                return operation(*args, **kwargs)
            finally:
                of_host.set_state(before)

        return drawn


default = DefaultGenerator("cuda")
