"""Random values for large tensors on the CPU are drawn once for each state of the generator, and copied after that.

A script that builds a layer for each closure draws its weights on one core each time: three matrices of 4096 x 14336
take 1.1 s of CPU to draw, and half of that to copy.  Every timer leaves the generators in one state (closure.seeded):
a layer of the same shapes gets the same weights; the generator goes on from where it would have been.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

LEAST = 1 << 20
"""Values that are worth it."""

MOST_BYTES = 4 << 30
"""Of all that is held; what comes later is drawn each time."""

FILLS = ("uniform_", "normal_")
"""Methods of a tensor; what torch.nn.init and torch.nn's layers draw by."""


def of_torch(torch: Any, timing: Callable[[], bool]) -> None:
    """Have these methods remember.  timing: whether a closure is looked at or timed: then they do what they do."""
    held: dict[Any, tuple[Any, Any]] = {}
    plain = (torch.Tensor, torch.nn.Parameter)

    def remembering(name: str, original: Any) -> Any:
        @functools.wraps(original)
        def fill(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            scalars = all(isinstance(one, (int, float)) for one in (*args, *kwargs.values()) if one is not None)
            known = scalars and type(tensor) in plain and tensor.device.type == "cpu" and tensor.is_contiguous()
            if not known or tensor.numel() < LEAST or timing():
                return original(tensor, *args, **kwargs)
            state = torch.get_rng_state()
            asked = (name, tensor.dtype, tensor.shape, args, tuple(sorted(kwargs.items())), bytes(state.numpy()))
            if asked not in held:
                returned = original(tensor, *args, **kwargs)
                if tensor.nbytes + sum(one.nbytes for one, _ in held.values()) <= MOST_BYTES:
                    held[asked] = tensor.detach().clone(), torch.get_rng_state()
                return returned
            values, after = held[asked]
            torch.set_rng_state(after)
            return tensor.copy_(values)

        return fill

    for name in FILLS:
        setattr(torch.Tensor, name, remembering(name, getattr(torch.Tensor, name)))
