"""A declaration of what a script times, for a team to keep: its shapes and types as cases, its providers as backends.

A closure whose body is one expression of importable functions is written down as it is; where another call belongs, the
declaration says which one.  It imports as it is, and `ridgeline verify` shows these places until they are filled.
"""

from __future__ import annotations

import dataclasses
import json
import keyword
import re
from collections.abc import Mapping, Sequence

from jinja2 import Environment

from ci.adopt.seen import ScriptCase, SeenScript

_TEMPLATE = '''"""{{ operator }}: what {{ script }} times, as a declaration.

Cases, inputs and calls are what a run of the script showed.
{%- if missing %}
Fill in the places marked Unsupported.{% endif %}  Then: ridgeline verify --kernel {{ operator }}
"""

{% if called %}import functools

{% endif %}import torch
from {{ spec }} import Case, Cost, Kernel, Tolerance, Unsupported

{{ name }} = Kernel(
    {{ operator|tojson }},
    cases=[
{%- for case in cases %}
        Case({{ case.name|tojson }}, tier="pr"
        {%- for key, value in case.dims %}, {{ key }}={{ value }}{% endfor %}, dtype={{ case.dtype|tojson }}),
{%- endfor %}
    ],
    tolerance=Tolerance(norm=1e-2, peak=0.2),  # the widest of our own bf16 operators; tighten it
)

SEEN = {
{%- for case in cases %}
    {{ case.name|tojson }}: {{ case.inputs }},
{%- endfor %}
}
"""Tensors that the timed closures of each case hold."""


{% if called %}def kept(call, tensors):
    """The call with its output in one buffer, as the contract asks.  The copy is timed, too: out= is better."""
    first = call(*tensors)
    if first is None:
        return functools.partial(call, *tensors)
    whole = isinstance(first, torch.Tensor)

    def run():
        found = call(*tensors)
        for buffer, new in zip([first] if whole else first, [found] if whole else found, strict=True):
            buffer.copy_(new)
        return first

    return run


{% endif %}@{{ name }}.inputs
def inputs(case, seed):
    """The tensors that the script showed, with normal values; whole numbers are below 2."""
    drawn = {}
    for index, (dtype, shape) in enumerate(SEEN[case.name]):
        kind = getattr(torch, dtype)
        values = torch.randn(shape) if kind.is_floating_point else torch.randint(0, 2, shape)
        drawn[f"x{index}"] = values.to(kind)
    return drawn


@{{ name }}.cost
def cost(case):
    """Bytes: every tensor once.  FLOPs are not known here."""
    sizes = [torch.Size(shape).numel() * getattr(torch, dtype).itemsize for dtype, shape in SEEN[case.name]]
    return Cost(flops=0, hbm_bytes=sum(sizes))


@{{ name }}.reference
def reference(case, inputs):
{%- if reference %}
    """What the script computes as {{ reference.said }}; better: the same in plain torch, in higher precision."""
{{ reference.body }}
    return calls[case.name](*inputs.values())
{%- else %}
    raise Unsupported("the truth in plain torch is not written yet; needed: what {{ script }} computes, from inputs")
{%- endif %}
{% for backend in backends %}

@{{ name }}.backend({{ backend.name|tojson }})
def {{ backend.function }}(case, inputs):
{%- if backend.calls %}
{{ backend.body }}
{%- if backend.missing %}
    if case.name not in calls:
        raise Unsupported("not written yet; needed: the call that {{ script }} times here as {{ backend.said }}")
{%- endif %}
    return kept(calls[case.name], tuple(inputs.values()))
{%- else %}
    raise Unsupported("not written yet; needed: the call that {{ script }} times as {{ backend.said }}")
{%- endif %}
{% endfor -%}
'''


TRUTH = ("torch", "pytorch", "eager", "native", "naive", "ref", "reference", "golden")
"""Providers whose call is the reference, if it is of torch alone."""


def declaration(seen: SeenScript, script: str, spec: str = "kernels.spec") -> str:
    """The text of a Python file that declares what the script times.  spec: the module with the contract."""
    good = [one for one in seen.closures if not one.why]
    cases: dict[str, ScriptCase] = {}
    for one in good:  # the inputs of a case are those of the closure that holds most
        if len(one.inputs) >= len(cases.get(one.declared_name, one).inputs):
            cases[one.declared_name] = one
    backends = [_provider(name, cases, good) for name in dict.fromkeys(one.backend for one in good)]
    reference = next((one for one in backends if one.is_truth), None)
    made = {
        "operator": _word(seen.operator).lower(),
        "name": _word(seen.operator),
        "script": script,
        "spec": spec,
        "cases": [_case(name, one) for name, one in cases.items()],
        "backends": backends,
        "reference": reference,
        "called": any(one.calls for one in backends),
        "missing": reference is None or any(one.missing for one in backends),
    }
    text = Environment(keep_trailing_newline=True).from_string(_TEMPLATE).render(made)
    return f"{text.rstrip()}\n"


@dataclasses.dataclass(frozen=True)
class PromotedProvider:
    """A provider as a backend.  calls: by case, a lambda of the case's inputs.  missing: whether a case has none."""

    said: str
    calls: Mapping[str, str]
    modules: tuple[str, ...]
    missing: bool

    @property
    def name(self) -> str:
        """Of the backend."""
        return _word(self.said)

    @property
    def function(self) -> str:
        """Of the set-up."""
        return f"{self.name}_"

    @property
    def body(self) -> str:
        """What comes before the return of its set-up."""
        imports = [f"    import {module}" for module in self.modules]
        listed = [f"        {json.dumps(case)}: {call}," for case, call in self.calls.items()]
        return "\n".join([*imports, *([""] if imports else []), "    calls = {", *listed, "    }"])

    @property
    def is_truth(self) -> bool:
        """Whether it can stand for the reference."""
        return self.said.lower() in TRUTH and not self.missing and not self.modules


def _provider(said: str, cases: Mapping[str, ScriptCase], good: Sequence[ScriptCase]) -> PromotedProvider:
    """With the calls that were seen on the very inputs of their case."""
    own = {one.declared_name: one for one in good if one.backend == said}
    told = {name: one for name, one in own.items() if one.call and one.inputs == cases[name].inputs}
    calls = {name: f"lambda {_names(len(one.inputs))}: {one.call}" for name, one in told.items()}
    modules = {module for one in told.values() for module in one.modules if module.partition(".")[0] != "torch"}
    return PromotedProvider(said, calls, tuple(sorted(modules)), len(calls) < len(own))


def _names(count: int) -> str:
    return ", ".join(f"x{index}" for index in range(count))


def _case(name: str, one: ScriptCase) -> dict[str, object]:
    taken = ("name", "tier", "world", "dtype", "distribution", "place")
    dims = [(key, _literal(value)) for key, value in one.parameters.items() if key not in taken]
    return {"name": name, "dims": dims, "dtype": one.dtype, "inputs": [_tensor(said) for said in one.inputs]}


def _literal(value: str) -> str:
    """A number as it is, a flag, or a text in quotes."""
    if re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", value) or value in ("True", "False"):
        return value
    return json.dumps(value)


def _tensor(said: str) -> tuple[str, tuple[int, ...]]:
    """("float32", (64, 64)) of "float32[64, 64]"."""
    kind, _, shape = said.rstrip("]").partition("[")
    return kind, tuple(int(one) for one in shape.split(",") if one.strip())


def _word(text: str) -> str:
    """A name of Python."""
    bare = re.sub(r"\W+", "_", text).strip("_") or "script"
    bare = f"_{bare}" if bare[0].isdigit() else bare
    return f"{bare}_" if keyword.iskeyword(bare) else bare
