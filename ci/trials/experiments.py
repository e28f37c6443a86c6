"""Trials of head with something put back as it is in base, in one line of the trial file that they explain.

    {"format": "ridgeline-experiment", "version": 1, "case": "gemm/triton/m64", "put": ["knob num_stages=3"],
     "trials": [{"format": "ridgeline-trial", ...}, ...], "code": []}

The trials stand inside the line, so whoever compares base with head never takes one for a trial of head.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from benchmarks.shapes import anything, items, name, one_of, record, text
from ci.trials.trial import Json, Trial

FORMAT, VERSION = "ridgeline-experiment", 1


@dataclasses.dataclass(frozen=True, eq=False)
class ExperimentLine:
    """What was measured of one case with some things put back.

    case: operator/backend/case.  put: keys of what was put back (`ci.why.types.Suspect.key`); () in a line that only
    has code.  code: what the compiler emits differently for the case, a sentence each.
    """

    case: str
    put: tuple[str, ...]
    trials: tuple[Trial, ...] = ()
    code: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Any) -> ExperimentLine:
        """From the JSON value of a line.  Raises Unfit."""
        LINE(data, "")
        trials = tuple(Trial.of(one, json.dumps(one)) for one in data["trials"])
        return cls(data["case"], tuple(data["put"]), trials, tuple(data["code"]))

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """What it is about."""
        return self.case, self.put

    def as_json(self) -> Json:
        """The JSON value of its line."""
        trials = [json.loads(trial.text) for trial in self.trials]
        said = {"case": self.case, "put": list(self.put), "trials": trials, "code": list(self.code)}
        return {"format": FORMAT, "version": VERSION, **said}


SENTENCE = 2000
"""Characters of a sentence about machine code."""

LINE = record(
    {
        "format": one_of(FORMAT),
        "version": one_of(VERSION),
        "case": name,
        "put": items(name),
        "trials": items(anything),
        "code": items(text(SENTENCE, lines=False)),
    },
    {},
)
"""A line; each trial in it is checked as one."""
