"""A GitHub of our own for the tests: one repository with state, over real sockets, with faults that are scripted.

    with StandIn() as github:
        github.pull(7, head=SHA)
        github.fault("POST", "issues/7/comments", Response("", 502), after=True)   # carried out, its answer is lost
        client = GitHub(github.repository, "token", github.url)

It answers as docs.github.com describes (read 2026-11-22): pages of at most 100 with a Link header, 404 for what is not
there, 422 for what is not right.  A path that it does not know is 404 and is kept in `unknown`, so that a test can say
that there was none.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import itertools
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from werkzeug import Request, Response
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.serving import WSGIRequestHandler, make_server

Json = dict[str, Any]
BOT = "github-actions[bot]"
BODY_LIMIT = 65_536
"""Characters of a comment's body."""
OUTPUT_LIMIT = 65_535
"""Characters of a check run's summary, and of its text."""

DROP = "drop"
"""A fault: the connection is closed without an answer."""
HANG = "hang"
"""A fault: no answer for HANG_S, then the connection is closed."""
HANG_S = 0.5


@dataclasses.dataclass
class Fault:
    """What happens to calls that fit, `times` times.  after: the call is carried out first, its answer is lost.

    answer: a Response, DROP, HANG, or None to answer as usual (`meanwhile` alone).
    meanwhile: called before the call is carried out: what somebody else does at that moment.
    """

    method: str
    path: re.Pattern[str]
    answer: Response | str | None
    after: bool = False
    times: int = 1
    meanwhile: Callable[[], object] | None = None


@dataclasses.dataclass
class Call:
    """A call as it came in; path without "/repos/OWNER/NAME/"."""

    method: str
    path: str
    token: str
    query: Json
    value: Any


ROUTES = """
GET    {repo}                                                   repository
GET    {repo}/pulls                                             pulls
GET    {repo}/pulls/<int:number>                                one_pull
GET    {repo}/commits/<sha>/check-runs                          checks_of_commit
GET    {repo}/issues/<int:number>/comments                      list_comments
POST   {repo}/issues/<int:number>/comments                      make_comment
PATCH  {repo}/issues/comments/<int:id>                          edit_comment
DELETE {repo}/issues/comments/<int:id>                          drop_comment
POST   {repo}/issues/comments/<int:id>/reactions                react
GET    {repo}/collaborators/<user>/permission                   permission
POST   {repo}/check-runs                                        make_check
GET    {repo}/actions/runs                                      list_runs
GET    {repo}/actions/runs/<int:id>/jobs                        jobs_of_run
POST   {repo}/actions/workflows/<name>/dispatches               dispatch
GET    {repo}/actions/runners                                   list_runners
POST   {repo}/actions/runners/generate-jitconfig                make_jit
DELETE {repo}/actions/runners/<int:id>                          drop_runner
GET    /orgs/<org>/actions/runners                              list_runners
POST   /orgs/<org>/actions/runners/generate-jitconfig           make_jit
DELETE /orgs/<org>/actions/runners/<int:id>                     drop_runner
GET    {repo}/git/ref/heads/<path:branch>                       one_ref
POST   {repo}/git/refs                                          make_ref
PATCH  {repo}/git/refs/heads/<path:branch>                      move_ref
"""


class StandIn:
    """One repository on a server of its own; state is plain lists and dicts that a test reads and sets.

    author: login of whoever the token belongs to.
    """

    def __init__(self, repository: str = "o/r") -> None:
        self.repository = repository
        self.author = BOT
        self.default_branch = "main"
        self.pulls: list[Json] = []
        self.comments: dict[int, list[Json]] = {}
        self.reactions: dict[int, list[Json]] = {}
        self.permissions: dict[str, str] = {}
        self.checks: list[Json] = []
        self.runs: list[Json] = []
        self.jobs: list[Json] = []
        self.runners: list[Json] = []
        self.dispatches: list[Json] = []
        self.refs: dict[str, str] = {"main": "0" * 40}
        self.faults: list[Fault] = []
        self.calls: list[Call] = []
        self.unknown: list[str] = []
        self._ids = itertools.count(1)
        self._lock = threading.RLock()
        self._map = routes(repository)
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> StandIn:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    # ---- what a test says ----

    def pull(self, number: int, head: str, state: str = "open", fork: bool = False, base: str = "main") -> Json:
        """A pull request; fork: from a repository of a stranger."""
        source = "stranger/r" if fork else self.repository
        made = {
            "number": number,
            "state": state,
            "head": {"sha": head, "ref": f"topic-{number}", "repo": {"full_name": source, "fork": fork}},
            "base": {"sha": "0" * 40, "ref": base, "repo": {"full_name": self.repository}},
            "user": {"login": "author"},
        }
        self.pulls.append(made)
        return made

    def comment(self, number: int, body: str, author: str = "") -> Json:
        """A comment that is there."""
        login = author or self.author
        user = {"login": login, "type": "Bot" if login.endswith("[bot]") else "User"}
        made = {"id": next(self._ids), "body": body, "user": user, "issue": number}
        made["html_url"] = f"https://github.example/{self.repository}/pull/{number}#issuecomment-{made['id']}"
        self.comments.setdefault(number, []).append(made)
        return made

    def bodies(self, number: int) -> list[str]:
        """The texts of the comments of an issue or pull request."""
        return [comment["body"] for comment in self.comments.get(number, [])]

    def job(self, labels: list[str], run: int | None = None, status: str = "queued", **given: Any) -> Json:
        """A job of a workflow run (a new one if none is given) that waits for a runner with these labels."""
        if run is None:
            run = self.run()["id"]
        made = {"id": next(self._ids), "run_id": run, "status": status, "conclusion": None, "labels": labels}
        made |= {"runner_id": 0, "runner_name": "", "name": f"job {made['id']}"} | given
        self.jobs.append(made)
        return made

    def run(self, status: str = "queued", head: str = "0" * 40, **given: Any) -> Json:
        """A workflow run."""
        made = {"id": next(self._ids), "status": status, "conclusion": None, "head_sha": head}
        made |= {"event": "workflow_dispatch", "path": ".github/workflows/gpu.yml"} | given
        made["html_url"] = f"https://github.example/{self.repository}/actions/runs/{made['id']}"
        self.runs.append(made)
        return made

    def fault(self, method: str, path: str, answer: Response | str | None, **how: Any) -> None:
        """Script a fault for calls whose path within the repository fits a regular expression.  how: see Fault."""
        self.faults.append(Fault(method, re.compile(path), answer, **how))

    def told(self, method: str, path: str = "") -> list[Call]:
        """The calls with this method whose path fits."""
        return [call for call in self.calls if call.method == method and re.search(path, call.path)]

    # ---- the server ----

    def _serve(self, environ: Json, start: Callable[..., Any]) -> Iterator[bytes]:
        request = Request(environ)
        with self._lock:
            call = self._call(request)
            self.calls.append(call)
            fault = next((one for one in self.faults if self._fits(one, call)), None)
            if fault:
                fault.times -= 1
        if fault and fault.meanwhile:
            fault.meanwhile()  # may call us itself
        answer = None
        if fault is None or fault.after or fault.answer is None:
            with self._lock:
                answer = self._answer(request, call)
        if fault is not None and fault.answer is not None:
            answer = self._faulty(fault.answer, environ)
        assert answer is not None
        return answer(environ, start)

    def _call(self, request: Request) -> Call:
        path = request.path.removeprefix(f"/repos/{self.repository}").lstrip("/")
        try:
            value = json.loads(request.data) if request.data else None
        except ValueError:
            value = request.data
        token = request.headers.get("Authorization", "").partition(" ")[2]
        return Call(request.method, path, token, dict(request.args), value)

    @staticmethod
    def _fits(fault: Fault, call: Call) -> bool:
        return fault.times > 0 and fault.method == call.method and bool(fault.path.search(call.path))

    def _faulty(self, answer: Response | str, environ: Json) -> Response:
        if isinstance(answer, Response):
            return answer
        if answer == HANG:
            time.sleep(HANG_S)
        with contextlib.suppress(OSError):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return Response()

    def _answer(self, request: Request, call: Call) -> Response:
        try:
            endpoint, given = self._map.bind_to_environ(request.environ).match()
        except HTTPException:
            self.unknown.append(f"{call.method} {call.path}")
            return said(404, "Not Found")
        given.pop("org", None)
        try:
            value = getattr(self, f"_{endpoint}")(call, **given)
        except Refused as refused:
            return said(refused.status, refused.message)
        return self._made(value, call, request)

    def _made(self, value: Any, call: Call, request: Request) -> Response:
        if isinstance(value, Listed):
            return value.page(call, request)
        status = 204 if value is None else 201 if call.method == "POST" else 200
        body = "" if value is None else json.dumps(value)
        return Response(body, status, content_type="application/json; charset=utf-8")

    # ---- the repository ----

    def _repository(self, call: Call) -> Json:
        owner = self.repository.partition("/")[0]
        return {
            "full_name": self.repository,
            "default_branch": self.default_branch,
            "owner": {"login": owner, "type": "Organization"},
        }

    # ---- pull requests, comments ----

    def _pulls(self, call: Call) -> Listed:
        state = call.query.get("state", "open")
        return Listed([pull for pull in self.pulls if state in ("all", pull["state"])])

    def _one_pull(self, call: Call, number: int) -> Json:
        return found(self.pulls, "number", number)

    def _list_comments(self, call: Call, number: int) -> Listed:
        return Listed(self.comments.get(number, []))

    def _make_comment(self, call: Call, number: int) -> Json:
        return self.comment(number, self._body(call))

    def _every_comment(self) -> list[Json]:
        return [comment for listed in self.comments.values() for comment in listed]

    def _edit_comment(self, call: Call, id: int) -> Json:
        comment = found(self._every_comment(), "id", id)
        comment["body"] = self._body(call)
        return comment

    def _drop_comment(self, call: Call, id: int) -> None:
        comment = found(self._every_comment(), "id", id)
        self.comments[comment["issue"]].remove(comment)

    @staticmethod
    def _body(call: Call) -> str:
        body = call.value.get("body", "")
        if not body:
            raise Refused(422, "Body cannot be blank")
        if len(body) > BODY_LIMIT:
            raise Refused(422, f"Body is too long (maximum is {BODY_LIMIT} characters)")
        return body

    def _react(self, call: Call, id: int) -> Json:
        made = {"id": next(self._ids), "content": call.value["content"], "user": {"login": self.author}}
        self.reactions.setdefault(id, []).append(made)
        return made

    def _permission(self, call: Call, user: str) -> Json:
        role = self.permissions.get(user, "read")
        legacy = {"maintain": "write", "triage": "read"}.get(role, role)
        return {"permission": legacy, "role_name": role, "user": {"login": user}}

    # ---- check runs ----

    def _checks_of_commit(self, call: Call, sha: str) -> Listed:
        name = call.query.get("check_name")
        fitting = [check for check in self.checks if check["head_sha"] == sha and name in (None, check["name"])]
        return Listed(fitting[::-1], "check_runs")

    def _make_check(self, call: Call) -> Json:
        slug = self.author.removesuffix("[bot]")
        made = {"id": next(self._ids), "app": {"slug": slug}, "status": "queued", "conclusion": None}
        made["html_url"] = f"https://github.example/{self.repository}/runs/{made['id']}"
        self._merge_check(made, call.value)
        self.checks.append(made)
        return made

    @staticmethod
    def _merge_check(check: Json, value: Json) -> None:
        output = dict(value.get("output") or {})
        for key in ("summary", "text"):
            if len(output.get(key, "")) > OUTPUT_LIMIT:
                raise Refused(422, f"output.{key} exceeds a maximum of {OUTPUT_LIMIT} characters")
        check.update({key: item for key, item in value.items() if key != "output"})
        check.setdefault("output", {}).update(output)
        if value.get("conclusion"):
            check["status"] = "completed"

    # ---- workflow runs, jobs, runners ----

    def _list_runs(self, call: Call) -> Listed:
        wanted = {key: call.query[key] for key in ("status", "head_sha", "event") if key in call.query}
        fitting = [run for run in self.runs if all(run[key] == value for key, value in wanted.items())]
        return Listed(fitting[::-1], "workflow_runs")

    def _jobs_of_run(self, call: Call, id: int) -> Listed:
        found(self.runs, "id", id)
        return Listed([job for job in self.jobs if job["run_id"] == id], "jobs")

    def _dispatch(self, call: Call, name: str) -> None:
        self.dispatches.append({"workflow": name, "ref": call.value["ref"], "inputs": call.value.get("inputs", {})})

    def _list_runners(self, call: Call) -> Listed:
        return Listed(self.runners, "runners")

    def _drop_runner(self, call: Call, id: int) -> None:
        self.runners.remove(found(self.runners, "id", id))

    def _make_jit(self, call: Call) -> Json:
        """A runner for one job, and its configuration: base64 of the runner's name and labels."""
        value = call.value
        if "runner_group_id" not in value or not value.get("labels"):
            raise Refused(422, "Invalid request: runner_group_id and labels are required")
        if value["runner_group_id"] != 1:
            raise Refused(404, "Not Found")
        if any(runner["name"] == value["name"] for runner in self.runners):
            raise Refused(409, f"Already exists - A runner with the name *** ({value['name']}) already exists")
        labels = [{"name": name, "type": "custom"} for name in value["labels"]]
        made = {"id": next(self._ids), "name": value["name"], "status": "offline", "busy": False, "labels": labels}
        made |= {"ephemeral": True, "runner_group_id": value["runner_group_id"], "os": "linux"}
        self.runners.append(made)
        config = json.dumps({"id": made["id"], "name": made["name"], "labels": value["labels"]})
        return {"runner": made, "encoded_jit_config": base64.b64encode(config.encode()).decode()}

    # ---- what a runner does, for a stand-in of the runner program ----

    def take_job(self, runner: int) -> Json | None:
        """The runner goes online and is given the oldest queued job that its labels fit; None if there is none."""
        with self._lock:
            one = found(self.runners, "id", runner)
            one["status"] = "online"
            labels = {label["name"] for label in one["labels"]}
            job = next((job for job in self.jobs if job["status"] == "queued" and set(job["labels"]) <= labels), None)
            if job:
                one["busy"] = True
                job |= {"status": "in_progress", "runner_id": runner, "runner_name": one["name"]}
                found(self.runs, "id", job["run_id"])["status"] = "in_progress"
            return job

    def end_job(self, job: int, conclusion: str = "success") -> None:
        """A job has ended; its runner, which takes one job only, is gone; the run ends with its last job."""
        with self._lock:
            one = found(self.jobs, "id", job)
            one |= {"status": "completed", "conclusion": conclusion}
            self.runners = [runner for runner in self.runners if runner["id"] != one["runner_id"]]
            last = [job for job in self.jobs if job["run_id"] == one["run_id"]]
            if all(job["status"] == "completed" for job in last):
                good = all(job["conclusion"] in ("success", "skipped") for job in last)
                run = found(self.runs, "id", one["run_id"])
                run |= {"status": "completed", "conclusion": "success" if good else "failure"}

    # ---- branches and files ----

    def _one_ref(self, call: Call, branch: str) -> Json:
        if branch not in self.refs:
            raise Refused(404, "Not Found")
        return {"ref": f"refs/heads/{branch}", "object": {"sha": self.refs[branch], "type": "commit"}}

    def _make_ref(self, call: Call) -> Json:
        branch = call.value["ref"].removeprefix("refs/heads/")
        if branch in self.refs:
            raise Refused(422, "Reference already exists")
        self.refs[branch] = call.value["sha"]
        return {"ref": call.value["ref"], "object": {"sha": call.value["sha"]}}

    def _move_ref(self, call: Call, branch: str) -> Json:
        if branch not in self.refs:
            raise Refused(422, "Reference does not exist")
        self.refs[branch] = call.value["sha"]
        return {"ref": f"refs/heads/{branch}", "object": {"sha": call.value["sha"]}}


@dataclasses.dataclass
class Listed:
    """A list that is answered page by page.  key: where the answer has it, "" if it is the answer itself."""

    items: list[Json]
    key: str = ""

    def page(self, call: Call, request: Request) -> Response:
        """One page, with the address of the next in the Link header."""
        size = min(int(call.query.get("per_page", 30)), 100)
        number = int(call.query.get("page", 1))
        part = self.items[(number - 1) * size : number * size]
        value = {"total_count": len(self.items), self.key: part} if self.key else part
        answer = Response(json.dumps(value), 200, content_type="application/json; charset=utf-8")
        if number * size < len(self.items):
            query = "&".join(f"{key}={item}" for key, item in {**call.query, "page": number + 1}.items())
            answer.headers["Link"] = f'<{request.base_url}?{query}>; rel="next", <{request.base_url}>; rel="first"'
        return answer


class Refused(Exception):
    """The call is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Clock:
    """In place of the module `time`: time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.slept = []

    def time(self) -> float:
        return 1000.0 + sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        """Nothing: the calls are in `StandIn.calls`."""


@functools.cache
def routes(repository: str) -> Map:
    """What answers which call."""
    listed = (line.split() for line in ROUTES.strip().splitlines())
    rules = [Rule(path.format(repo=f"/repos/{repository}"), methods=[by], endpoint=name) for by, path, name in listed]
    return Map(rules)


def said(status: int, message: str, **headers: str) -> Response:
    """An error as GitHub words it; headers: with _ for -."""
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Response(json.dumps({"message": message}), status, named, content_type="application/json; charset=utf-8")


def found(items: list[Json], key: str, value: object) -> Json:
    """The item, or 404."""
    for item in items:
        if item[key] == value:
            return item
    raise Refused(404, "Not Found")
