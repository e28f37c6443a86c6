"""A benchmark script of any repository under paired A/B: what is asked for, and what came of it."""

from __future__ import annotations

import dataclasses
import json
import keyword
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment
from rich.console import Console

from benchmarks.shapes import built
from ci.calling import inherited_paths
from ci.git.repository import LocalCheckout, Repository
from ci.harness import NOTHING, USAGE, ChildExit, MeasureError, MeasurePlan, follow, of_checkout, options, program
from ci.judging.live import Told

# What a script times, as the measuring program tells it before anything is timed.


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


@dataclasses.dataclass(frozen=True)
class SeenScript:
    """What `python -m benchmarks.adopted --told FILE` writes.

    timed: keys of what would be timed.  left_out: by key, why another would not be.  trial_s: seconds of a trial.
    """

    operator: str
    timed: tuple[str, ...]
    left_out: Mapping[str, str]
    trial_s: float
    warnings: tuple[str, ...]
    closures: tuple[ScriptCase, ...]


# What is asked of a script, as the argument list of `python -m benchmarks.adopted`; and measuring by it.


PRINTED = "{out}.{role}.txt"
"""What the measuring program keeps beside a trial file: the end of what the script printed."""


class NothingToCompare(Exception):
    """The script ran and timed nothing that both sides have; the text says why."""


@dataclasses.dataclass(frozen=True)
class ScriptRequest:
    """path: of the script below the top of the repository.  source: the file whose text runs on both sides.

    arguments: of the script.  folder: below the top, in which it runs.  paths: folders for imports, below the top of
    each checkout or absolute.  device: "cpu" or "".  budget_min: minutes for survey and trials, which are divided over
    budget_trials.  all_cases: time what runs the same code on both sides, too.
    """

    path: Path
    source: Path
    arguments: tuple[str, ...] = ()
    folder: Path = Path()
    paths: tuple[str, ...] = ()
    device: str = ""
    budget_min: float | None = None
    budget_trials: int = 7
    all_cases: bool = False

    def options(self, checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path) -> list[str]:
        """The options of the measuring program, apart from progress; the script's own arguments last."""
        budget_s = self.budget_min * 60 if self.budget_min else None
        pythons = [f"{role}={python}" for role, python in plan.pythons.items()]
        argv = [*["--all-cases"] * self.all_cases, *(one for side in checkouts for one in of_checkout(side))]
        argv += options(script=self.path, source=self.source.resolve(), out=out.resolve(), folder=self.folder)
        argv += options(path=self.paths, env=pythons, device=self.device or None, budget=budget_s)
        argv += options(seed=plan.seed, rounds=plan.rounds, trials=plan.trials or 1, budget_trials=self.budget_trials)
        return [*argv, *options(cache=plan.cache or None, deadline=plan.deadline_s), "--", *self.arguments]

    def measure(
        self, checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path, console: Console, told: Told
    ) -> int:
        """Trials of the script into a file (a ci.judging.live.Measure); its exit code."""
        ended = self._followed(["--orders", *self.options(checkouts, plan, out)], out, console, told)
        if ended.code == NOTHING and not out.exists():
            raise NothingToCompare(ended.last)
        if ended.code == USAGE or ended.code < 0:
            raise MeasureError(_reason(ended))
        return ended.code

    def seen(self, checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path, console: Console) -> SeenScript:
        """What both sides time; nothing is timed."""
        told = Path(f"{out.resolve()}.told")
        ended = self._followed(["--told", str(told), *self.options(checkouts, plan, out)], out, console)
        if ended.code == NOTHING:
            raise NothingToCompare(ended.last)
        if not told.exists():
            raise MeasureError(_reason(ended))
        try:
            return built(SeenScript, json.loads(told.read_bytes()))
        finally:
            told.unlink(missing_ok=True)

    def _followed(self, words: Sequence[str], out: Path, console: Console, told: Told | None = None) -> ChildExit:
        out.parent.mkdir(parents=True, exist_ok=True)
        argv = program("benchmarks.adopted", "--progress", "json", *words)
        return follow(argv, console, f"looking at {self.path.stem}", echo=False, told=told)


def _reason(ended: ChildExit) -> str:
    """The sentence that a program ended with; of a crash, how it ended."""
    return ended.last if ended.code >= 0 else f"the measuring program was {ended.how}; last it said: {ended.last}"


def import_paths(root: Path, named: Sequence[str]) -> tuple[str, ...]:
    """Folders that a side's imports search: those that were named, and those of PYTHONPATH.

    A folder of the repository is one of the checkout: else both sides would import the working tree.  One inside that
    git knows no file of, such as an environment of installed packages, is of both sides.
    """
    known = Repository(root)
    return tuple(dict.fromkeys(_below(known, root, one) for one in (*map(Path, named), *inherited_paths())))


def _below(known: Repository, root: Path, folder: Path) -> str:
    whole = (folder if folder.is_absolute() else root / folder).resolve()
    if not whole.is_relative_to(root):
        return str(whole)
    below = whole.relative_to(root)
    return str(below) if not whole.is_dir() or known.tracks(below) else str(whole)


# A declaration of what a script times, for a team to keep: its shapes and types as cases, its providers as backends.
#
# A closure whose body is one expression of importable functions is written down as it is; where another call belongs,
# the declaration says which one. It imports as it is, and `ridgeline verify` shows these places until they are filled.


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
    reference = next((one for one in backends if one["is_truth"]), None)
    made = {
        "operator": _word(seen.operator).lower(),
        "name": _word(seen.operator),
        "script": script,
        "spec": spec,
        "cases": [_case(name, one) for name, one in cases.items()],
        "backends": backends,
        "reference": reference,
        "called": any(one["calls"] for one in backends),
        "missing": reference is None or any(one["missing"] for one in backends),
    }
    text = Environment(keep_trailing_newline=True).from_string(_TEMPLATE).render(made)
    return f"{text.rstrip()}\n"


def _provider(said: str, cases: Mapping[str, ScriptCase], good: Sequence[ScriptCase]) -> dict[str, object]:
    """A provider as a backend of the template, with the calls that were seen on the very inputs of their case.

    calls: by case, a lambda of the case's inputs.  body: what comes before the return of its set-up.  missing: whether
    a case has no call.  is_truth: whether it can stand for the reference.
    """
    own = {one.declared_name: one for one in good if one.backend == said}
    told = {name: one for name, one in own.items() if one.call and one.inputs == cases[name].inputs}
    calls = {name: f"lambda {_names(len(one.inputs))}: {one.call}" for name, one in told.items()}
    modules = sorted({module for one in told.values() for module in one.modules if module.partition(".")[0] != "torch"})
    imports = [*(f"    import {module}" for module in modules), *([""] if modules else [])]
    listed = [f"        {json.dumps(case)}: {call}," for case, call in calls.items()]
    name, missing = _word(said), len(calls) < len(own)
    return {
        "said": said,
        "name": name,
        "function": f"{name}_",
        "calls": calls,
        "body": "\n".join([*imports, "    calls = {", *listed, "    }"]),
        "missing": missing,
        "is_truth": said.lower() in TRUTH and not missing and not modules,
    }


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
