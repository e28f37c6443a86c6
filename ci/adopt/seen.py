"""What a script times, as the measuring program tells it before anything is timed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from ci.trials.trial import Json

TORCH_DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
"""Types of torch that a case of a declaration may have and that torch draws (kernels.spec.DTYPE_BYTES has others)."""


@dataclasses.dataclass(frozen=True)
class ScriptCase:
    """A closure of the script.  inputs: as "float32[64, 64]".  expected_s: seconds of a call.  why: it failed.

    call: what it does, in Python, with the inputs as x0, x1, ... in their order; "" where that was not seen.
    modules: that it needs.
    """

    backend: str
    case: str
    timer: str
    expected_s: float
    inputs: tuple[str, ...]
    why: str = ""
    call: str = ""
    modules: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its name in the trial file."""
        return f"{self.backend}/{self.case}"

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters in its name: {"M": "1024", "dtype": "bf16"}."""
        said = self.case.rpartition(":")[2].partition("#")[0]
        pairs = (part.partition("=") for part in said.split(",") if "=" in part)
        return {name: value for name, _, value in pairs if name.isidentifier()}

    @property
    def dtype(self) -> str:
        """The type in its name, else of its first floating-point input, else fp32."""
        named = self.parameters.get("dtype", "")
        if named in TORCH_DTYPES.values():
            return named
        found = (TORCH_DTYPES.get(one.partition("[")[0]) for one in self.inputs)
        return next(filter(None, found), "fp32")

    @property
    def declared_name(self) -> str:
        """A name that a declaration's case may have: letters, digits and _ . + -, from the parameters."""
        said = "_".join(f"{name.lower()}{value}" for name, value in self.parameters.items() if name != "dtype")
        bare = re.sub(r"[^A-Za-z0-9_.+-]+", "_", said or self.case).strip("_.+-")
        return f"{bare}_{self.dtype}" if bare else self.dtype


LISTS = ("inputs", "modules")
FIELDS = tuple(field.name for field in dataclasses.fields(ScriptCase))


@dataclasses.dataclass(frozen=True)
class SeenScript:
    """timed: keys of what would be timed.  left_out: by key, why another would not be.  trial_s: seconds of a trial."""

    operator: str
    timed: tuple[str, ...]
    left_out: Mapping[str, str]
    trial_s: float
    warnings: tuple[str, ...]
    closures: tuple[ScriptCase, ...]

    @classmethod
    def of(cls, told: Json) -> SeenScript:
        """From the JSON that `python -m benchmarks.adopted --told FILE` writes."""
        closures = tuple(
            ScriptCase(**{name: one[name] for name in FIELDS} | {name: tuple(one[name]) for name in LISTS})
            for one in told["closures"]
        )
        timed, warnings = tuple(told["timed"]), tuple(told["warnings"])
        return cls(told["operator"], timed, told["left_out"], told["trial_s"], warnings, closures)
