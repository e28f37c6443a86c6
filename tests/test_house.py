"""The house: which room may import which, no cycles (.github/ARCHITECTURE.md)."""

from __future__ import annotations

import ast
import graphlib
import re
import sys

from tests.modules import PACKAGES, files, imports, named, statements, syntax

STDLIB = set(sys.stdlib_module_names)

SHARED = {
    "benchmarks.lifetime",
    "benchmarks.trial_file",
    "benchmarks.shapes",
    "benchmarks.points",
    "benchmarks.programs.reader",
    "benchmarks.reach",
    "benchmarks.sources",
}
"""The descriptions of the trial file and of a sweep's points: writers and readers import them.  What a
change of files can reach: whoever measures and whoever judges must agree on it.  And how a process of ours ends with
the one that started it, which every package needs."""

ROOMS = {
    "kernels": {"kernels"},
    "benchmarks": {"benchmarks", "kernels"},
    "benchmarks.coordinator": {"benchmarks", "kernels"},
    "benchmarks.worker": {"benchmarks", "kernels"},
    "benchmarks.isa": {"benchmarks", "kernels"},
    "benchmarks.machine": {"benchmarks.machine", "benchmarks.plan", "benchmarks.shapes", "kernels.hardware"},
    "ci": {"ci", "kernels.hardware", "kernels.project", *SHARED},
    "benchmarks.emulation": {"benchmarks.emulation", "benchmarks.naming", "benchmarks.isa"},
    **dict.fromkeys(
        (f"benchmarks.emulation.{part}" for part in ("cases", "worker", "pool", "verify", "executed")), {"benchmarks"}
    ),
    "benchmarks.emulation.collective": {
        "benchmarks.emulation",
        "kernels.numerics",
        "kernels.spec",
        "kernels.symmetric_heap",
    },
    **dict.fromkeys(("ci.commands.emulate", "ci.adopt"), {"ci", "benchmarks.emulation", *SHARED}),
    "ci.installed": {"ci", "kernels.spec"},
    "ci.stats": {"ci.stats"},
    "ci.trials": {"ci.trials", "ci.stats", *SHARED},
    "ci.records": {
        *("ci.records", "ci.trials", "ci.stats", "ci.git", "ci.whole_files"),
        *("kernels.hardware", "kernels.project"),
        *SHARED,
    },
    "ci.judging": {
        *("ci.judging", "ci.records", "ci.trials", "ci.stats", "ci.harness", "ci.git"),
        *("kernels.hardware", "kernels.project"),
        *SHARED,
    },
    "ci.history": {
        *("ci.history", "ci.records", "ci.trials", "ci.stats", "ci.git", "ci.report.words", "ci.whole_files"),
        *SHARED,
    },
    "ci.history.reading": {"ci.history", "ci.judging", "ci.records", "ci.git", "kernels.project"},
    "ci.git": {"ci.git", "kernels.project"},
    "ci.tables": {"ci.report.words"},
    "dashboards": {
        *("dashboards", "ci.records", "ci.history", "ci.stats", "ci.trials"),
        *("ci.sweeps.measured", "ci.sweeps.show", "ci.report.words", "kernels.hardware", "kernels.project"),
    },
}
"""Which of our modules a room may import; a room within a room is held to the longest name that fits."""

NEVER = {
    "kernels": {"benchmarks", "ci", "dashboards"},
    "benchmarks": {"ci", "dashboards"},
    "benchmarks.coordinator": {"torch", "triton", "benchmarks.worker"},
    "benchmarks.machine": {"torch", "triton", "benchmarks.worker", "benchmarks.coordinator"},
    "benchmarks.sweeping": {"torch", "triton", "benchmarks.worker"},
    "benchmarks.worker": {"benchmarks.coordinator"},
    "ci": {"torch", "triton", "dashboards"},
    "dashboards": {"torch", "triton"},
}
"""What a room and everything in it never imports."""

LIGHT = ("kernels.spec", "kernels.registry", "kernels.project", "kernels.hardware", *SHARED)
"""Standard library only, and each other."""


def at_load(module):
    """Of our modules, those that loading a module loads (imports inside functions come later)."""
    nodes = list(statements(syntax(module), ast.FunctionDef))
    typing = {n for i in nodes if isinstance(i, ast.If) and "TYPE_CHECKING" in ast.dump(i.test) for n in ast.walk(i)}
    found = (name for node in nodes if node not in typing for name in named(node, module))
    return {name for name in found if name in files() and name != module}


def within(module, rooms):
    return [room for room in rooms if module == room or module.startswith(f"{room}.")]


def test_a_room_imports_only_what_the_table_allows():
    for module in files():
        ours = {name for name in imports(module) if name.partition(".")[0] in PACKAGES}
        room = max(within(module, ROOMS), key=len)
        assert {name for name in ours if not within(name, ROOMS[room])} == set(), module
        for room in within(module, NEVER):
            assert {name for name in imports(module) if within(name, NEVER[room])} == set(), module


BESIDE_FOREIGN_CODE = (
    *("benchmarks.worker", "benchmarks.channel", "benchmarks.naming", "benchmarks.isa.worker"),
    *("benchmarks.isa.compile", "benchmarks.isa.code", "benchmarks.isa.amd", "benchmarks.isa.nvidia"),
)
"""What is imported in a process that imports a project's code, whose packages may have the names of ours."""


def test_beside_foreign_code_our_modules_name_each_other_relatively():
    before = {"benchmarks", "benchmarks.lifetime"}  # a program that is started by its path, until it has settled
    for module in (name for name in files() if within(name, BESIDE_FOREIGN_CODE)):
        nodes = ast.walk(syntax(module))
        plain = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level and node.module}
        assert {name for name in plain if name.partition(".")[0] in PACKAGES} <= before, module


def test_verbs_are_imported_by_the_command_line_alone():
    users = {module for module in files() if any(name.startswith("ci.commands.") for name in imports(module))}
    assert {module for module in users if not module.startswith("ci.commands.")} <= {"ci.__main__"}


def test_what_every_node_reads_needs_the_standard_library_only():
    for module in LIGHT:
        assert {name for name in imports(module) if name.partition(".")[0] not in STDLIB} <= set(LIGHT), module


def test_no_files_import_each_other_in_a_circle():
    tuple(graphlib.TopologicalSorter({module: at_load(module) for module in files()}).static_order())


def test_no_folders_import_each_other_in_a_circle():
    def folder(module):
        return module if files()[module].name == "__init__.py" else module.rpartition(".")[0]

    graph = {}
    for module in files():
        below = {folder(name) for name in imports(module) if name in files()}
        graph.setdefault(folder(module), set()).update(below - {folder(module), *PACKAGES, "benchmarks"})
    tuple(graphlib.TopologicalSorter(graph).static_order())


def test_a_module_is_a_chapter():
    lengths = {module: path.read_text().count("\n") for module, path in files().items()}
    assert {module: length for module, length in lengths.items() if length > 700} == {}


def test_values_without_a_type_stay_at_the_edges():
    untyped = re.compile(r"\b(?:dict|Mapping)\[str, Any\]")
    counts = {module: len(untyped.findall(path.read_text())) for module, path in files().items()}
    found = {module: count for module, count in counts.items() if count and module.startswith("ci")}
    assert sum(found.values()) <= 60, found
