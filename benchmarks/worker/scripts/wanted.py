"""What a timer was asked for, in one form for all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class TimerCall:
    """timer: its name.  call: the closure, without arguments.  roots: where its tensors are looked for.

    no_grad_of: tensors whose gradients are cleared before each call.  threads: of torch, 0 for as they are.
    hot: it asks for warm caches.  named: parameters that it knows.  function: what is timed, for its name.
    gives_output: the script gets what the call returned.
    """

    timer: str
    call: Callable[[], Any]
    roots: tuple[Any, ...] = ()
    no_grad_of: tuple[Any, ...] = ()
    threads: int = 0
    hot: bool = False
    named: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    function: Any = dataclasses.field(default="call")
    gives_output: bool = False

    @property
    def timed(self) -> Any:
        """The function that gives the closure its name."""
        return self.call if self.function == "call" else self.function
