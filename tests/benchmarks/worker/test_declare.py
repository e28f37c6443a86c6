"""What a declaration becomes, by the contract of any commit."""

from __future__ import annotations

import types

from benchmarks.worker import declare


def test_the_definition_digest_has_two_names():
    def kernel(**digest):
        return types.SimpleNamespace(name="toy", doc="", backends={}, baselines=(), cases=(), protocol=None, **digest)

    for name in ("yardstick", "definition_digest"):
        found = declare._declaration(kernel(**{name: lambda terms, case=None: "abc"}), types.ModuleType("spec"), {}, {})
        assert found["yardstick"] == "abc"
