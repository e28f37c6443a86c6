"""A declaration of what a script times, for a team to keep: its shapes and types as cases, its providers as backends.

What the script computes stays in the script: where a call belongs, the declaration says which one.  It imports as it
is, and `ridgeline verify` shows these places until they are filled.
"""

from __future__ import annotations

import json
import keyword
import re

from jinja2 import Environment

from ci.adopt.seen import ScriptCase, SeenScript

_TEMPLATE = '''"""{{ operator }}: what {{ script }} times, as a declaration.

Cases and inputs are what a run of the script showed.  Fill in the places marked Unsupported, then:
ridgeline verify --kernel {{ operator }}
"""

import torch
from kernels.spec import Case, Cost, Kernel, Tolerance, Unsupported

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


@{{ name }}.inputs
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
    raise Unsupported("the truth in plain torch is not written yet; needed: what {{ script }} computes, from inputs")
{% for backend in backends %}

@{{ name }}.backend({{ backend.name|tojson }})
def {{ backend.function }}(case, inputs):
    raise Unsupported("not written yet; needed: the call that {{ script }} times as {{ backend.said }}")
{% endfor -%}
'''


def declaration(seen: SeenScript, script: str) -> str:
    """The text of a Python file that declares what the script times."""
    good = [one for one in seen.closures if not one.why]
    cases = {one.declared_name: one for one in good}
    backends = dict.fromkeys(one.backend for one in good)
    text = (
        Environment(keep_trailing_newline=True)
        .from_string(_TEMPLATE)
        .render(
            operator=_word(seen.operator),
            name=_word(seen.operator),
            script=script,
            cases=[_case(name, one) for name, one in cases.items()],
            backends=[{"name": _word(one), "function": f"{_word(one)}_", "said": one} for one in backends],
        )
    )
    return f"{text.rstrip()}\n"


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
