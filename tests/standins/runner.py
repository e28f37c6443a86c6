"""GitHub's runner program, and the side of GitHub that it talks to, for the tests.

    with RunnerHub() as github:
        program = install(folder / "actions-runner", github.url)        # run.sh, as [site.NAME.runner] names it
        github.queue(["linux", "mi300x-1"], ["echo measured > /tmp/x"])

`run.sh` does what the real one does, as far as it can be seen from outside: it takes the configuration from the
variable, writes its credentials beside itself, goes online, takes one job with its labels, lets a process of its own
call the hook and run the job's lines, reports, and ends.  Each line runs whatever the hook said, like a step with
`if: always()`: only the end of the process keeps a refused job from running.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

START = """\
#!/bin/bash
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ -z "${RUNNER_MANUALLY_TRAP_SIG:-}" ] || trap 'kill -INT $program' INT TERM
"$(cat "$here/python")" "$here/bin/listener.py" "$@" &
program=$!
wait "$program"
"""

PATIENCE_S = 20.0
"""Seconds that the program waits for a job."""


def install(folder: Path, url: str) -> Path:
    """The program in a folder of its own; returns its run.sh."""
    (folder / "bin").mkdir(parents=True)
    (folder / "externals").mkdir()
    (folder / "bin/listener.py").write_text(Path(__file__).read_text())
    (folder / "python").write_text(sys.executable)
    (folder / "bin/url").write_text(url)
    (folder / "run.sh").write_text(START)
    (folder / "run.sh").chmod(0o755)
    return folder / "run.sh"


def ask(root: Path, path: str) -> dict[str, Any]:
    """A call of the program to GitHub; {} where GitHub has nothing."""
    request = urllib.request.Request(f"{(root / 'bin/url').read_text()}/runner/{path}", method="POST")
    for _ in range(100):
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return dict(json.loads(answer.read() or b"{}"))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                sys.exit("the runner was deleted")
            time.sleep(0.1)
        except OSError:
            time.sleep(0.1)
    sys.exit("GitHub is away")


def listen(root: Path) -> None:
    """Runner.Listener: register, take a job, let the worker run it, report."""
    secret = os.environ.pop("ACTIONS_RUNNER_INPUT_JITCONFIG")
    (root / ".runner").open("x").write(base64.b64decode(secret).decode())  # two in one folder would share credentials
    number = json.loads((root / ".runner").read_text())["id"]
    deadline, job = time.monotonic() + PATIENCE_S, {}
    while not job and time.monotonic() < deadline:
        job = ask(root, f"take/{number}")
        time.sleep(0 if job else 0.1)
    if job:
        worker = [sys.executable, __file__, "worker", json.dumps(job)]
        good = subprocess.run(worker).returncode == 0
        ask(root, f"end/{job['id']}/{'success' if good else 'failure'}")


def work(job: dict[str, Any]) -> None:
    """Runner.Worker: the hook, then each line of the job."""
    env = os.environ | job["env"]
    hook = os.environ.get("ACTIONS_RUNNER_HOOK_JOB_STARTED")
    codes = [subprocess.run(["bash", "-e", hook], env=env).returncode] if hook else []
    codes += [subprocess.run(["bash", "-c", line], env=env).returncode for line in job["lines"]]
    sys.exit(any(codes))


def moment() -> str:
    """Now, as GitHub writes it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(json.loads(sys.argv[2]))
    else:
        listen(Path(__file__).resolve().parent.parent)
else:
    from werkzeug.routing import Rule

    from tests.standins.github import Call, Json, Refused, StandIn, found

    class RunnerHub(StandIn):
        """GitHub with the calls of the runner program, and runners that are at work."""

        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.secrets: list[str] = []
            for path, name in (("take/<int:id>", "take"), ("end/<int:id>/<how>", "end")):
                self._map.add(Rule(f"/runner/{path}", methods=["POST"], endpoint=name))

        def queue(self, labels: list[str], lines: list[str], **run: Any) -> Json:
            """A queued job of a new run whose steps are shell lines."""
            facts = {"head_branch": "main", "head_repository": {"full_name": self.repository}, **run}
            return self.job(labels, self.run(**facts)["id"], lines=lines)

        def one(self, job: int) -> Json:
            """A job, by its id."""
            return found(self.jobs, "id", job)

        def _make_jit(self, call: Call) -> Json:
            made = super()._make_jit(call)
            config = json.loads(base64.b64decode(made["encoded_jit_config"])) | {"key": secrets.token_hex(16)}
            secret = base64.b64encode(json.dumps(config).encode()).decode()
            self.secrets += [secret, config["key"]]
            return {**made, "encoded_jit_config": secret}

        def _take(self, call: Call, id: int) -> Json:
            job = self.take_job(id)
            if not job:
                return {}
            job["started_at"] = moment()
            run = found(self.runs, "id", job["run_id"])
            env = {
                "GITHUB_REPOSITORY": self.repository,
                "GITHUB_WORKFLOW_REF": f"{self.repository}/{run['path']}@refs/heads/{run['head_branch']}",
                "GITHUB_EVENT_NAME": run["event"],
                "GITHUB_RUN_ID": str(run["id"]),
            }
            return {"id": job["id"], "lines": job["lines"], "env": env}

        def _end(self, call: Call, id: int, how: str) -> None:
            self.one(id)["completed_at"] = moment()
            self.end_job(id, how)

        def _drop_runner(self, call: Call, id: int) -> None:
            if found(self.runners, "id", id)["busy"]:
                raise Refused(422, "Runner is currently running a job and cannot be deleted")
            super()._drop_runner(call, id)
