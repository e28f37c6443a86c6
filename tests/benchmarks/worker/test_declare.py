"""Which modules are imported, by the registry of any commit."""

from __future__ import annotations

import types
from pathlib import Path

from benchmarks.worker import declare

PACKAGE = types.SimpleNamespace(__path__=[str(Path(__file__).parents[1] / "toytree" / "toy")])


def test_an_older_registry_lists_what_declares_no_kernel():
    registry = types.SimpleNamespace(INFRASTRUCTURE={"steady"})
    assert declare._modules_of("kernels", PACKAGE, registry) == ["kernels.faults", "kernels.pairs"]
    assert declare._modules_of("toy", PACKAGE, registry) == ["toy.faults", "toy.pairs", "toy.steady"]


def test_a_newer_registry_has_a_rule():
    registry = types.SimpleNamespace(modules_of=lambda package: iter([package.__path__[0][-3:]]))
    assert declare._modules_of("kernels", PACKAGE, registry) == ["toy"]
    assert declare._modules_of("kernels", None, types.SimpleNamespace(modules_of=None)) == []


def test_the_definition_digest_has_two_names():
    def kernel(**digest):
        return types.SimpleNamespace(name="toy", doc="", backends={}, baselines=(), cases=(), protocol=None, **digest)

    for name in ("yardstick", "definition_digest"):
        found = declare._declaration(kernel(**{name: lambda terms, case=None: "abc"}), types.ModuleType("spec"), {}, {})
        assert found["yardstick"] == "abc"
