"""The steps of the workflows, carried out: the real commands in a clone, against a stand-in of GitHub."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ci.commands import init as newcomer
from tests.ci.commands.test_gate import MACHINE
from tests.ci.commands.test_gate import scene as scene
from tests.ci.commands.test_machines import night
from tests.ci.newcomer.conftest import LEGAL
from tests.github.actions import ROOT, JobRun, load
from tests.kit import git, mostly_nightly
from tests.standins.github import StandIn

TRIED = "2026-11-20T12:00:00Z", "2026-11-20T13:00:00Z"
"""The hour in which the made trials lie."""
RIDGELINE = """#!{python}
import sys
sys.path.insert(0, {root!r})
sys.argv = [one if one != "30" else "0" for one in sys.argv]  # nobody waits half an hour here
if sys.argv[1] == "site":  # measured and built elsewhere
    sys.exit(0)
from ci.__main__ import main
main()
"""


@pytest.fixture
def there():
    with StandIn() as standin:
        yield standin


class Stage:
    """A clone with our command in its .venv, `make` and `gh` that do nothing or answer from a file, and artifacts."""

    def __init__(self, expressions, scene, there, folder):
        self.expressions, self.scene, self.there = expressions, scene, there
        self.artifacts = {}
        self.tools = folder / "tools"
        self.tools.mkdir()
        for place in (".venv/bin", ".ridgeline/house/.venv/bin"):
            (scene.clone / place).mkdir(parents=True)
            self.script(scene.clone / place / "ridgeline", RIDGELINE.format(python=sys.executable, root=str(ROOT)))
        self.script(self.tools / "make", "#!/bin/sh\n")
        self.script(self.tools / "gh", f"#!/bin/sh\nexec cat {self.tools}/answer.json\n")

    def script(self, path, text):
        path.write_text(text)
        path.chmod(0o755)

    def answer(self, **job):
        """What GitHub says of the jobs of the run."""
        told = {"status": "completed", "conclusion": "success", "runner_name": "node-7", **job}
        (self.tools / "answer.json").write_text(json.dumps({"jobs": [told]}))

    def run(self, file, name, at=None, **contexts):
        """A job of a workflow, in the clone; its steps by name."""
        github = {"token": "t0ken", "server_url": "https://github.example", "repository": self.there.repository}
        given = {"github": {**github, "run_id": "77", **contexts.pop("github", {})}, **contexts}
        environ = {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "GITHUB_REPOSITORY": self.there.repository,
            "GITHUB_API_URL": self.there.url,
            "GITHUB_RUN_ID": "77",
            "GITHUB_SHA": self.scene.base,
            "GITHUB_EVENT_PATH": str(self.tools / "event.json"),
        }
        uses = dict.fromkeys(("actions/checkout", "actions/setup-python"), lambda given: None)
        uses |= {"actions/upload-artifact": self.upload, "actions/download-artifact": self.download}
        uses |= {"actions/upload-pages-artifact": lambda given: None}
        made = JobRun(self.expressions, load(file)["jobs"][name], at or self.scene.clone, given, environ, uses)
        return made, {step.name: step for step in made.run()}

    def upload(self, given):
        path = self.scene.clone / given["path"]
        if not path.exists() and given["if-no-files-found"] == "error":
            raise FileNotFoundError(path)
        if path.exists():
            self.artifacts[given["name"]] = {path.name: path.read_text()}

    def download(self, given):
        if given["name"] not in self.artifacts:
            raise FileNotFoundError(given["name"])
        for name, text in self.artifacts[given["name"]].items():
            (Path(given["path"]) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(given["path"]) / name).write_text(text)


@pytest.fixture
def stage(expressions, scene, there, tmp_path):
    there.pull(7, head=scene.head, fork=True)
    return Stage(expressions, scene, there, tmp_path)


def leg(scene, **changes):
    return {
        "sha": scene.head,
        "name": "h200-1",
        "pool": "h200",
        "gpus": 1,
        "clean": "true",
        "script": "true",
        **changes,
    }


# ---- a leg: measure, hand over, judge, tell --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_leg_from_its_trials_to_comment_and_check(stage):
    stage.scene.measured(0.03)
    measured = leg(stage.scene, script="cp trials.jsonl x && mv x trials.jsonl; exit 1")
    run, done = stage.run("leg.yml", "measure", inputs=measured)
    assert {step.outcome for step in done.values()} == {"success"}
    stage.answer(name="h200-1 / Measure", started_at=TRIED[0], completed_at=TRIED[1])
    (stage.scene.clone / "trials.jsonl").unlink()
    stage.artifacts["trials-h200-1"] |= {"report.json": '{"verdict": "SAME"}', "run.json": "{}"}  # forged; not read
    _, done = stage.run("leg.yml", "judge", inputs=leg(stage.scene))
    assert done["Judge"].outcome == done["Post"].outcome == "success", done["Judge"].output + done["Post"].output
    (check,) = stage.there.checks
    assert (check["head_sha"], check["conclusion"]) == (stage.scene.head, "failure")
    (comment,) = stage.there.bodies(7)
    assert "untrusted tree" in comment
    assert "h200" in comment


@pytest.mark.slow
@pytest.mark.parametrize(("code", "outcome"), [(0, "success"), (1, "success"), (2, "success"), (3, "failure")])
def test_verdicts_of_the_measuring_host_are_no_failure_of_its_job(stage, code, outcome):
    _, done = stage.run("leg.yml", "measure", inputs=leg(stage.scene, script=f"exit {code}"))
    assert done["Measure"].outcome == outcome
    assert done["Hand over the trials"].outcome == "failure", "there are none"


@pytest.mark.slow
@pytest.mark.parametrize(("status", "absent"), [("queued", True), ("in_progress", False)])
def test_a_machine_that_never_comes_is_told_as_absent(stage, status, absent):
    run = stage.there.run(id=77)
    stage.there.job(["h200"], run["id"], status, name="h200-1 / Measure")
    _, done = stage.run("leg.yml", "wait", inputs=leg(stage.scene))
    assert done["Say that it is absent"].outcome == ("success" if absent else "skipped")
    assert [one["conclusion"] for one in stage.there.checks] == ["neutral"] * absent
    assert ("absent" in "".join(stage.there.bodies(7))) is absent


# ---- the hosted check ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_nightly(["Check", "Pull request / Check"], "Pull request / Check"))
def test_the_trials_of_the_hosted_check_are_judged_and_told(stage, name):
    """Ours, and that of a repository which calls check.yml."""
    cpu = {**MACHINE, "kind": "cpu", "market_name": None}
    stage.scene.measured(0.0, lambda line: line.update(machine=cpu))
    trials = (stage.scene.clone / "trials.jsonl").read_text()
    stage.artifacts["trials"] = {"trials/some-name.jsonl": trials, "code/base.json": "{}", "code/head.json": "{}"}
    stage.answer(name=name, started_at=TRIED[0], completed_at=TRIED[1])
    finished = {"id": 5, "head_sha": stage.scene.head, "html_url": "https://github.example/o/r/actions/runs/5"}
    finished |= {"event": "pull_request", "conclusion": "failure"}
    _, done = stage.run("comment.yml", "comment", github={"event": {"workflow_run": finished}})
    assert done["Post"].outcome == "success", done["Post"].output
    assert stage.there.checks[0]["conclusion"] == "success"
    assert "the machine code could not be compared" in stage.there.bodies(7)[0]


# ---- what starts a run -----------------------------------------------------------------------------------------------


def legs(stage, **inputs):
    given = {"sha": stage.scene.head, "pool": "", "gpus": "", **inputs}
    run, done = stage.run("gpu.yml", "legs", at=ROOT, inputs=given)
    shutil.rmtree(run.temp)
    return done["List the legs"], json.loads(run.outputs["legs"].get("legs", "[]"))


@pytest.mark.slow
def test_legs_are_pools_and_sizes(stage):
    _, found = legs(stage, pool="mi300x")
    assert [one["name"] for one in found] == ["mi300x-1", "mi300x-8"]
    assert set(load("gpu.yml")["jobs"]["leg"]["with"]) - {"sha"} <= set(found[0])
    assert stage.scene.head in found[0]["script"]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["sha", "pool", "gpus"])
def test_an_input_is_never_a_piece_of_a_shells_line(stage, name):
    """(g) `x; touch FILE; #` in any input: refused, or a quoted word of the script; never carried out."""
    mark = stage.tools / "ran"
    step, found = legs(stage, **{name: f"x; touch {mark}; #"})
    if found:  # the name of a commit is checked inside, by git
        run, done = stage.run("leg.yml", "measure", inputs=leg(stage.scene, script=_words(found[0]["script"])))
        assert done["Measure"].outcome == "success", done["Measure"].output
    else:
        assert step.outcome == "failure"
    assert not mark.exists()


@pytest.mark.nightly
def test_legs_of_another_repository_install_the_ridgeline_whose_workflow_it_calls(stage, tmp_path):
    """Its pools, with the Ridgeline that the called file belongs to, from the address where it lies."""
    house, theirs = tmp_path / "OWNER/ridgeline", tmp_path / "theirs"
    listing = [
        "git",
        "ls-files",
        "kernels",
        "ci",
        "benchmarks",
        "dashboards",
        "setup.py",
        "pyproject.toml",
        "README.md",
        *LEGAL,
    ]
    for name in subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split():
        (house / name).parent.mkdir(parents=True, exist_ok=True)
        (house / name).write_bytes((ROOT / name).read_bytes())
    theirs.mkdir()
    for folder in (house, theirs):
        git(folder, "init", "-q", "-b", "main")
    git(house, "add", "-A")
    git(house, "commit", "-qm", "ridgeline")
    commit = git(house, "rev-parse", "HEAD").strip()
    newcomer.write(theirs, newcomer.planned(theirs, "main", "perf", f"OWNER/ridgeline@{commit}"), ())
    stage.script(stage.tools / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    job = {"workflow_repository": "OWNER/ridgeline", "workflow_sha": commit}
    inputs = {"sha": stage.scene.head, "pool": "", "gpus": ""}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_BUILD_ISOLATION", "0")
        patch.setenv("GIT_CONFIG_COUNT", "1")
        patch.setenv("GIT_CONFIG_KEY_0", f"url.file://{tmp_path}/.insteadOf")
        patch.setenv("GIT_CONFIG_VALUE_0", "https://github.example/")
        run, done = stage.run("gpu.yml", "legs", at=theirs, inputs=inputs, job=job)
    assert done["List the legs"].outcome == "skipped"
    assert done["Install, in another repository"].outcome == "success", done["Install, in another repository"].output
    (found,) = json.loads(run.outputs["theirs"]["legs"])
    assert (found["name"], found["runs_on"]) == ("cpu-0", ["ubuntu-24.04"])
    assert f"ridgeline[cpu] @ git+https://github.example/OWNER/ridgeline@{commit}" in found["script"]
    assert f"python -m ridgeline ci leg HEAD...{stage.scene.head}" in found["script"]


def _words(script):
    """The line of a leg's script that holds the command, printed instead of called."""
    (line,) = (line for line in script.splitlines() if line.startswith("command="))
    return line + '\nprintf "%s\\n" "${command[@]}"'


@pytest.mark.slow
def test_a_comment_of_a_writer_starts_a_run_of_the_commit_it_names(stage):
    comment = {"id": 9, "body": f"/ridgeline gpu {stage.scene.head} h200", "user": {"login": "w", "type": "User"}}
    outputs = said(stage, comment, "write")
    assert outputs["action"] == "gpu"
    stage.there.refs["main"] = stage.scene.base
    _, done = stage.run("command.yml", "start", needs={"read": {"outputs": outputs}})
    assert done["Start the GPU workflow for exactly this commit"].outcome == "success"
    inputs = {"sha": stage.scene.head, "pool": "h200"}
    assert stage.there.dispatches == [{"workflow": "gpu.yml", "ref": "ridgeline/gpu", "inputs": inputs}]


@pytest.mark.slow
@pytest.mark.parametrize(("permission", "sha"), [("read", None), ("write", "d" * 40)])
def test_others_and_other_commits_start_nothing(stage, permission, sha):
    """(d) Whoever may not write is refused, and so is a head that has moved on since it was read."""
    body = f"/ridgeline gpu {sha or stage.scene.head}"
    outputs = said(stage, {"id": 9, "body": body, "user": {"login": "w", "type": "User"}}, permission)
    assert outputs["action"] == "refused"
    assert stage.there.dispatches == []


def said(stage, comment, permission):
    """The outputs of the job that reads a comment."""
    stage.there.permissions["w"] = permission
    made = stage.there.comment(7, comment["body"], "w")
    event = {
        "action": "created",
        "comment": {**made, **comment, "id": made["id"]},
        "issue": {"number": 7, "pull_request": {"url": "x"}, "state": "open"},
        "repository": {"full_name": stage.there.repository},
        "sender": {"login": "w", "type": "User"},
    }
    (stage.tools / "event.json").write_text(json.dumps(event))
    run, done = stage.run("command.yml", "read", github={"event": event})
    assert done["Read the command"].outcome == "success", done["Read the command"].output
    return run.outputs["command"]


# ---- a night ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_night_records_what_fits_pushes_it_and_tells_the_rest(stage):
    scene = stage.scene
    git(scene.hub, "checkout", "-q", "--detach")
    lines = [night(scene.base), night(scene.base, 1, machine={**MACHINE, "market_name": "MI300X"})]
    stage.artifacts["trials-h200-1"] = {"trials.jsonl": "".join(json.dumps(one) + "\n" for one in lines) + "torn {"}
    stage.answer(name="h200-1 / Measure", started_at=TRIED[0], completed_at=TRIED[1])
    event = {"repository": {"default_branch": "main"}}
    _, done = stage.run("night_leg.yml", "record", github={"event": event}, inputs=leg(scene))
    outcomes = {name: step.outcome for name, step in done.items()}
    assert outcomes["Sort out what does not fit the run"] == "failure", "the night is red"
    assert outcomes["Record"] == outcomes["Push"] == outcomes["Build the site"] == "success", done["Record"].output
    pushed = git(scene.hub, "ls-tree", "-r", "--name-only", "main")
    assert f"results/h200x1-1a2b3c4d/{scene.base[:8]}-" in pushed
    assert "left out: " in done["Sort out what does not fit the run"].output


@pytest.mark.slow
def test_the_legs_of_a_night_are_those_of_the_inputs(stage):
    inputs = {"tier": "sweep", "pool": "h200", "gpus": "", "kernels": "gemm $(id) ; x"}
    github = {"ref_name": "main", "event": {"repository": {"default_branch": "main"}}}
    run, done = stage.run("nightly.yml", "legs", at=ROOT, inputs=inputs, github=github)
    shutil.rmtree(run.temp)
    (found,) = json.loads(run.outputs["legs"]["legs"])
    assert "night --tier sweep --kernels 'gemm $(id) ; x' --out trials.jsonl" in found["script"]
