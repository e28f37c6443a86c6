"""Two checkouts of a small repository of one's own, and a script that is surveyed or timed on them."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.adopted.__main__ import main
from benchmarks.adopted.session import ScriptSession
from benchmarks.adopted.survey import Survey

SCRIPT = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
"""Of the options of a test, those that are fields of the script."""
for field, kind in {"device": str, "ranks": int, "budget_s": float, "budget_trials": int, "paths": str}.items():
    nargs = {"nargs": 1} if field == "paths" else {}
    SCRIPT.add_argument(f"--{field.replace('_', '-')}", type=kind, **nargs)

LIBRARY = "import torch\n\n\ndef double(x):\n    return x * 2\n"


@dataclasses.dataclass
class Adopted:
    """What came of a run.  code: of the program; said: its stderr; lines: of the trial file; survey: what was seen."""

    code: int
    said: str
    lines: list[dict[str, Any]]
    out: Path
    survey: Survey | None

    def arms(self, line=0):
        """The arms of a line as ROLE/BACKEND/CASE."""
        cases = self.lines[line]["cases"].items()
        return {f"{arm}/{case}": one for case, entry in cases for arm, one in entry["arms"].items()}

    def printed(self, role="head"):
        """What the script printed in the first trial."""
        return Path(f"{self.out}.{role}.txt").read_text()

    def warnings(self, line=0):
        """Of all cases of a line."""
        return [one for entry in self.lines[line]["cases"].values() for one in entry["warnings"]]


@pytest.fixture
def adopt(tmp_path, capsys, monkeypatch):
    """adopt(script, *options, base={file: text}, head={file: text}, arguments=[...]) on two checkouts.

    every: time what runs the same code on both sides, too.
    """
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setenv("RIDGELINE_START", "fork")  # what one script needs is not for the next

    surveys = []
    survey = ScriptSession.survey
    monkeypatch.setattr(ScriptSession, "survey", lambda self: surveys.append(survey(self)) or surveys[-1])

    def run(script, *options, base=None, head=None, arguments=(), name="bench/script.py", every=True):
        for role, files in (("base", base or {}), ("head", head or {})):
            for path, text in {"mylib/__init__.py": LIBRARY, name: script, **files}.items():
                (tmp_path / role / path).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / role / path).write_text(text)
        out = tmp_path / "t.jsonl"
        trees = [f"--tree=base={tmp_path / 'base'}", f"--tree=head={tmp_path / 'head'}"]
        of_script, others = SCRIPT.parse_known_args(options)
        fields = {"path": name, "source": str(tmp_path / "head" / name), "arguments": arguments, "all_cases": every}
        script = json.dumps(fields | vars(of_script), default=str)
        chosen = [
            *trees,
            "--script",
            script,
            "--out",
            str(out),
            "--rounds",
            "8",
            "--cache",
            "hot",
            "--progress",
            "none",
        ]
        code = main([*chosen, "--progress", "none", *others])
        lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
        return Adopted(code, capsys.readouterr().err, lines, out, surveys.pop() if surveys else None)

    return run
