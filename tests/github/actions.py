"""Workflows as tests see them: read from YAML, conditions decided by GitHub's own code, steps carried out."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
LINT = Path(__file__).parent / "lint"
FILES = sorted(FOLDER.glob("*.yml"))
EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
STATUS = ("always()", "cancelled()", "failure()", "success()")

Json = dict[str, Any]


@functools.cache
def load(name):
    """A workflow, of this repository where it is a name; YAML 1.1 reads the key `on` as true, which is put right."""
    document = yaml.safe_load((FOLDER / name).read_text())
    document["on"] = document.pop(True, document.get("on"))
    return document


def triggers(document):
    """What starts it."""
    on = document["on"]
    return {on} if isinstance(on, str) else set(on)


def jobs():
    """(file, job) of every job."""
    return [(path.name, job) for path in FILES for job in load(path.name)["jobs"]]


def steps():
    """("file:job", step) of every step; a job that calls another workflow has none."""
    return [(f"{file}:{job}", step) for file, job in jobs() for step in load(file)["jobs"][job].get("steps", ())]


@dataclasses.dataclass(frozen=True)
class Expressions:
    """GitHub's evaluation of expressions, in a folder with the locked packages."""

    folder: Path

    def values(self, asked):
        """The values of expressions without their braces, each with its contexts and the status of the job."""
        if not asked:
            return []
        given = [{"text": text.strip(), "contexts": contexts, "status": status} for text, contexts, status in asked]
        done = subprocess.run(
            ["node", "evaluate.mjs"], cwd=self.folder, input=json.dumps(given), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def hold(self, asked):
        """Whether conditions of `if:` hold; one without a word about the status asks for success, as GitHub has it."""
        return [bool(one) for one in self.values([(_condition(c), contexts, status) for c, contexts, status in asked])]

    def holds(self, condition, contexts, status="success"):
        """One of them."""
        return status == "success" if condition is None else self.hold([(condition, contexts, status)])[0]

    def filled(self, texts, contexts):
        """Texts by name with their ${{ }} put in."""
        found = {name: EXPRESSION.findall(str(text)) for name, text in texts.items()}
        values = iter(self.values([(one, contexts, "success") for those in found.values() for one in those]))
        return {name: EXPRESSION.sub(lambda _: _word(next(values)), str(text)) for name, text in texts.items()}


def _condition(condition):
    text = "success()" if condition is None else str(condition).removeprefix("${{").removesuffix("}}")
    return text if any(word in text for word in STATUS) else f"success() && ({text})"


def _word(value):
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: ""}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclasses.dataclass
class StepDone:
    """What became of a step: "success", "failure" or "skipped"; outcome counts, before continue-on-error."""

    name: str
    outcome: str
    output: str = ""


@dataclasses.dataclass
class JobRun:
    """Carries out the steps of a job in a folder.  uses: what stands in for actions, by their name.

    contexts: github, inputs, ...; environ: further variables, PATH first.
    """

    expressions: Expressions
    job: Json
    folder: Path
    contexts: Json
    environ: Mapping[str, str]
    uses: Mapping[str, Callable[[Mapping[str, str]], None]]
    outputs: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    summary: str = ""

    def __post_init__(self):
        self.temp = self.folder / f"runner-temp-{os.getpid()}"
        self.temp.mkdir(exist_ok=True)
        self.contexts = {"runner": {"temp": str(self.temp)}, "steps": {}, "job": {}, **self.contexts}

    def run(self):
        """All steps, one after the other."""
        status, done = "success", []
        for number, step in enumerate(self.job["steps"]):
            one = self._step(step, status, number)
            done.append(one)
            self.contexts["steps"][step.get("id", f"_{number}")] = {
                "outcome": one.outcome,
                "outputs": self.outputs.get(step.get("id", ""), {}),
            }
            if one.outcome == "failure" and not step.get("continue-on-error"):
                status = "failure"
        return done

    def _step(self, step, status, number):
        name = step.get("name") or step.get("uses", "")
        if not self.expressions.holds(step.get("if"), self.contexts, status):
            return StepDone(name, "skipped")
        if "uses" in step:
            return self._used(name, step)
        env = {**os.environ, **self.environ, **self.expressions.filled(step.get("env", {}), self.contexts)}
        files = {key: self.temp / f"{key}-{number}" for key in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")}
        for path in files.values():
            path.touch()
        env |= {**{key: str(path) for key, path in files.items()}, "RUNNER_TEMP": str(self.temp)}
        assert not EXPRESSION.search(step["run"]), "no expression stands in a command"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-c", step["run"]],  # GitHub's default shell, less its file
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
        )
        self.outputs[step.get("id", "")] = dict(_outputs(files["GITHUB_OUTPUT"].read_text()))
        self.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        return StepDone(name, "failure" if done.returncode else "success", done.stdout + done.stderr)

    def _used(self, name, step):
        action = step["uses"].partition("@")[0]
        try:
            self.uses[action](self.expressions.filled(step.get("with", {}), self.contexts))
        except FileNotFoundError as error:
            return StepDone(name, "failure", str(error))
        return StepDone(name, "success")


def _outputs(text):
    """NAME=VALUE lines."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        yield name, value
