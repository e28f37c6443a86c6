"""`/ridgeline ...` on a pull request: read as hostile, granted by the API's word only, for exactly what was named."""

from __future__ import annotations

import contextlib
import json

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from werkzeug import Response

from ci.__main__ import main
from ci.commands import github as orders
from ci.commands.github import OrderError, parse, read_event
from tests.standins.github import Clock

SHA = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


def event(body, **changes):
    told = {
        "action": "created",
        "issue": {"number": 7, "pull_request": {"url": "https://x"}},
        "comment": {
            "id": 99,
            "body": body,
            "html_url": "https://github.example/o/r/pull/7#issuecomment-99",
            "user": {"login": "maintainer", "type": "User"},
            "author_association": "OWNER",
        },
    }
    for path, value in changes.items():
        *keys, last = path.split("__")
        inner = told
        for key in keys:
            inner = inner[key]
        inner[last] = value
    return told


@pytest.fixture
def ask(github, environ, monkeypatch, tmp_path):
    """ask(body, *options, **changes of the event) runs the verb on the stand-in."""
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    github.permissions["maintainer"] = "write"
    github.pull(7, SHA)

    def run(body, *options, **changes):
        (tmp_path / "output").unlink(missing_ok=True)
        (tmp_path / "event.json").write_text(json.dumps(event(body, **changes)))
        return CliRunner().invoke(main, ["command", "--event", str(tmp_path / "event.json"), *options])

    return run


def outcome(result):
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


# ---- gpu ----


@pytest.mark.parametrize(
    ("named", "pool", "where"),
    [(SHA, "", "every pool"), (SHA[:8], "", "every pool"), (SHA[:12].upper(), "mi300x-8", "`mi300x-8`")],
)
def test_gpu_is_for_exactly_the_commit_that_was_named(github, ask, tmp_path, named, pool, where):
    done = outcome(ask(f"/ridgeline gpu {named} {pool}\nplease"))
    assert (done["action"], done["sha"], done["pool"]) == ("gpu", SHA, pool)
    assert (tmp_path / "output").read_text() == f"action=gpu\nsha={SHA}\npool={pool}\n"
    assert [one["content"] for one in github.reactions[99]] == ["+1"]
    assert github.bodies(7) == [f"<!-- ridgeline:answer:99 -->\nMeasuring `{SHA}` on {where}."]


def test_gpu_is_refused_when_the_head_has_moved(github, ask):
    github.pulls[0]["head"]["sha"] = OTHER
    done = outcome(ask(f"/ridgeline gpu {SHA}"))
    assert (done["action"], done["sha"]) == ("refused", "")
    assert "the head of this pull request is `ffffffff`, not `01234567`" in github.bodies(7)[0]
    assert github.reactions[99][0]["content"] == "-1"


def test_a_commit_of_a_fork_is_named_in_full(github, ask):
    github.pulls[0]["head"]["repo"] = {"full_name": "stranger/r"}
    assert "all 40 digits" in outcome(ask(f"/ridgeline gpu {SHA[:39]}"))["answer"]
    assert outcome(ask(f"/ridgeline gpu {SHA}"))["action"] == "gpu"
    github.pulls[0]["head"]["repo"] = None
    assert outcome(ask(f"/ridgeline gpu {SHA[:39]}"))["action"] == "refused", "the fork is deleted"


@pytest.mark.parametrize(
    ("permission", "granted"),
    [("admin", True), ("maintain", True), ("write", True), ("triage", False), ("read", False), (None, False)],
)
def test_who_may_is_asked_of_the_api(github, ask, permission, granted):
    github.permissions = {"maintainer": permission} if permission else {}
    done = outcome(ask(f"/ridgeline gpu {SHA}", comment__author_association="NONE" if granted else "OWNER"))
    assert done["action"] == ("gpu" if granted else "refused")
    assert granted or "people with write access" in github.bodies(7)[0]


def test_a_closed_pull_request(github, ask):
    github.pulls[0]["state"] = "closed"
    assert "is closed" in outcome(ask(f"/ridgeline gpu {SHA}"))["answer"]


# ---- what is no order, and what is not right ----


@pytest.mark.parametrize(
    "changes",
    [
        {"action": "edited"},
        {"action": "deleted"},
        {"issue": {"number": 7}},
        {"comment__user": {"login": "some-app[bot]", "type": "Bot"}},
    ],
)
def test_what_is_no_new_comment_of_a_person_on_a_pull_request(github, ask, changes):
    assert outcome(ask(f"/ridgeline gpu {SHA}", **changes))["action"] == "nothing"
    assert github.calls == []


@pytest.mark.parametrize(
    "body", ["", "nice", f"> /ridgeline gpu {SHA}", f"text\n/ridgeline gpu {SHA}", "/ridgelines gpu"]
)
def test_other_comments_are_left_alone(github, ask, body):
    assert outcome(ask(body))["action"] == "nothing"
    assert github.calls == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("/ridgeline fly", "allowed is"),
        ("/ridgeline gpu 0123456", "8 to 40 hex digits"),
        (f"/ridgeline gpu {SHA}0", "8 to 40 hex digits"),
        (f"/ridgeline gpu {SHA} $(id)", "8 to 40 hex digits"),
        ("/ridgeline gpu $(id)abcdef0", "8 to 40 hex digits"),
    ],
)
def test_an_order_that_is_not_right_is_answered(github, ask, body, said):
    done = outcome(ask(body))
    assert done["action"] == "refused"
    assert said in github.bodies(7)[0]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.text())
def test_no_text_breaks_the_reading(text):
    for body in (text, f"/ridgeline {text}", f"/ridgeline gpu {text}"):
        with contextlib.suppress(OrderError):
            order = parse(body)
            assert order is None or "\n" not in "".join(order)


@pytest.mark.parametrize("text", ["", "{}", "[1]", json.dumps({"action": "created", "issue": {}, "comment": {}})])
def test_an_event_of_another_kind_is_refused(tmp_path, text):
    (tmp_path / "event.json").write_text(text)
    with pytest.raises(OrderError, match="not an event of `issue_comment`"):
        read_event(tmp_path / "event.json")


# ---- twice, and without effect ----


@pytest.mark.parametrize("path", ["reactions", "issues/7/comments"])
@pytest.mark.parametrize("after", [True, False])
def test_a_second_run_of_the_job_answers_once(github, ask, path, after):
    ask(f"/ridgeline gpu {SHA}")
    github.fault("POST", path, Response("", 502), after=after)
    ask(f"/ridgeline gpu {SHA}")
    assert len(github.bodies(7)) == 1


def test_a_dry_run_changes_nothing(github, ask, tmp_path):
    assert outcome(ask(f"/ridgeline gpu {SHA}", "--dry-run"))["action"] == "gpu"
    assert {call.method for call in github.calls} == {"GET"}
    assert not (tmp_path / "output").exists()


# A GPU run is started for one commit, on a ref of its own; and a machine that never comes is noticed.

TRUSTED = "0" * 40


@pytest.mark.parametrize("before", [None, "1" * 40])
def test_a_run_has_the_files_of_the_default_branch_and_the_commit_as_data(github, environ, before):
    if before:
        github.refs[orders.REF] = before
    assert CliRunner().invoke(main, ["start", SHA, "--pool", "mi300x"]).exit_code == 0
    assert github.refs[orders.REF] == TRUSTED
    assert github.dispatches == [
        {"workflow": "gpu.yml", "ref": "ridgeline/gpu", "inputs": {"sha": SHA, "pool": "mi300x"}}
    ]


@pytest.mark.parametrize("sha", ["main", "a" * 39, "A" * 40, "", "refs/pull/1/head", "a" * 40 + "\n"])
def test_a_run_is_for_exactly_one_commit(github, environ, sha):
    done = CliRunner().invoke(main, ["start", sha])
    assert (done.exit_code, "is not a full commit hash" in done.output) == (3, True)
    assert github.calls == []


class Time(Clock):
    """Seconds that pass when somebody sleeps; at some moment a machine comes."""

    def __init__(self, standin, comes_at):
        super().__init__()
        self.comes_at, self.standin, self.monotonic = comes_at, standin, self.time

    def sleep(self, seconds):
        super().sleep(seconds)
        if sum(self.slept) >= self.comes_at:
            self.standin.jobs[0] |= {"status": "in_progress", "runner_name": "node-1"}


@pytest.mark.parametrize(("comes_at", "taken"), [(60.0, True), (1e9, False)])
@pytest.mark.parametrize("caller", ["", "GPU / "])
def test_a_machine_that_does_not_come_is_noticed(github, client, monkeypatch, caller, comes_at, taken):
    job = github.job(["mi300x"], name=f"{caller}mi300x-8 / Measure")
    monkeypatch.setattr(orders, "time", time := Time(github, comes_at))
    assert orders.machine_took_job(client, job["run_id"], "mi300x-8 / Measure", 5) is taken
    assert sum(time.slept) <= 300


def test_the_verbs(github, environ, monkeypatch):
    run = CliRunner().invoke
    dry = run(main, ["start", SHA, "--dry-run"])
    assert dry.exit_code == 0
    assert github.calls == []
    assert "ridgeline/gpu" in dry.output
    job = github.job(["x"], name="a / Measure")
    absent = run(main, ["wait", "--run", str(job["run_id"]), "--job", "a / Measure", "--minutes", "0"])
    assert (absent.exit_code, absent.output) == (2, "absent: no machine took 'a / Measure' within 0 minutes\n")
    job["status"] = "in_progress"
    monkeypatch.setenv("GITHUB_RUN_ID", str(job["run_id"]))
    assert run(main, ["wait", "--job", "a / Measure", "--minutes", "0"]).exit_code == 0
