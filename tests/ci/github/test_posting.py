"""`ridgeline report --post`: from a report file, or from its absence, to check run, comment and step summary."""

from __future__ import annotations

import dataclasses

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from werkzeug import Response

from ci.__main__ import main
from ci.github import client as client_module
from ci.github.client import GitHubError
from ci.github.comment import comment_text, pull_requests, write_comment
from ci.judging.types import Judgement, Verdict
from ci.report import json_report, markdown
from ci.report.markdown import CUT, LIMIT, MARKER, blocks, shortened
from ci.report.model import Report
from tests.ci.report import samples
from tests.standins.github import BOT, said

SHA = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40
FASTER = Report(Judgement(Verdict.FASTER, "gemm takes 10 % less"))


@pytest.fixture
def no_sleep(monkeypatch):
    monkeypatch.setattr(client_module.time, "sleep", lambda seconds: None)


@pytest.fixture
def posted(environ, monkeypatch, tmp_path):
    """Runs the verb on the stand-in: posted(report, *options)."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))

    def run(report, *options, sha=SHA, name="report"):
        file = tmp_path / f"{name}.json"
        file.unlink(missing_ok=True)
        if report is not None:
            file.write_text(report if isinstance(report, str) else json_report.dumps(report))
        return CliRunner().invoke(main, ["report", str(file), "--post", sha, *options])

    return run


def test_check_comment_and_summary(github, posted, tmp_path):
    github.pull(7, SHA)
    github.pull(8, SHA, fork=True)
    options = ("--pool", "mi300x", "--summary", "--link", "run=https://x.example/1")
    done = posted(samples.slower(), *options)
    assert (done.exit_code, done.output) == (0, "posted SLOWER on #7, #8\n")
    (body,), (check,) = github.bodies(7), github.checks
    assert github.bodies(8) == [body]
    assert "## ❌ SLOWER on mi300x: gemm takes 2.5 % longer" in body
    assert "[run](<https://x.example/1>)" in body
    assert (check["name"], check["head_sha"], check["status"]) == ("Ridgeline mi300x", SHA, "completed")
    assert (check["conclusion"], check["details_url"]) == ("failure", "https://x.example/1")
    assert check["output"]["title"].startswith("SLOWER: gemm takes 2.5 % longer")
    assert check["output"]["summary"].startswith("## ❌ SLOWER on mi300x")
    assert (tmp_path / "summary.md").read_text().startswith("## ❌ SLOWER on mi300x")
    posted(samples.slower(), *options)
    assert github.bodies(7) == [body]
    assert github.unknown == []


@pytest.mark.parametrize(
    ("verdict", "conclusion"),
    [
        (Verdict.SLOWER, "failure"),
        (Verdict.BROKEN, "failure"),
        (Verdict.SAME, "success"),
        (Verdict.FASTER, "success"),
        (Verdict.CANNOT_TELL, "neutral"),
        (Verdict.NOT_COMPARABLE, "neutral"),
    ],
)
def test_the_verdict_is_the_conclusion(github, posted, verdict, conclusion):
    posted(Report(Judgement(verdict, "why")))
    assert [check["conclusion"] for check in github.checks] == [conclusion]


def test_one_comment_has_a_section_for_each_pool_and_an_absent_one_delays_none(github, posted):
    github.pull(7, SHA)
    absent = ("--missing", "absent: no runner of this pool took the job within 30 minutes")
    assert posted(None, "--pool", "mi355x", *absent).exit_code == 0
    posted(samples.same(), "--pool", "mi300x", *absent)
    posted(FASTER)
    (body,) = github.bodies(7)
    assert "## ❔ CANNOT TELL on mi355x: absent: no runner of this pool took the job within 30 minutes" in body
    assert "## ✅ SAME on mi300x" in body
    assert "## ✅ FASTER: " in body
    assert [check["conclusion"] for check in github.checks] == ["neutral", "success", "success"]
    posted(samples.slower(), "--pool", "mi355x")
    (body,) = github.bodies(7)
    assert "## ❌ SLOWER on mi355x" in body
    assert "absent" not in body


def test_a_comment_is_of_one_commit(github, posted):
    pull = github.pull(7, SHA)
    posted(samples.slower(), "--pool", "mi300x")
    pull["head"]["sha"] = OTHER
    assert posted(samples.same(), "--pool", "mi355x", sha=OTHER).exit_code == 0
    (body,) = github.bodies(7)
    assert "SAME on mi355x" in body
    assert "mi300x" not in body


def test_a_job_that_calls_itself_ridgeline_has_no_section(github, posted):
    """A stranger names the jobs of his workflow as he likes; GitHub makes their check runs and their external ids."""
    github.pull(7, SHA)
    posted(samples.slower(), "--pool", "mi300x")
    forged = {**github.checks[0], "id": 10**9, "external_id": "0b4a2e5c-1d8f", "output": {"summary": "## ✅ SAME"}}
    github.checks.append(forged)
    posted(samples.same(), "--pool", "mi355x")
    (body,) = github.bodies(7)
    assert "## ❌ SLOWER on mi300x" in body
    assert "## ✅ SAME\n" not in body


def test_pools_that_end_at_once_are_all_in_the_comment(github, posted):
    """Another pool posts its check run, and its comment, between our reading of the check runs and our writing."""
    github.pull(7, SHA)
    github.fault("POST", "issues/7/comments", None, meanwhile=lambda: posted(FASTER, "--pool", "mi325x", name="2"))
    posted(samples.slower(), "--pool", "mi300x")
    (body,) = github.bodies(7)
    assert "## ❌ SLOWER on mi300x" in body
    assert "## ✅ FASTER on mi325x" in body


@pytest.mark.parametrize("path", ["check-runs", "issues/7/comments"])
def test_a_lost_answer_doubles_nothing(github, posted, no_sleep, path):
    github.pull(7, SHA)
    github.fault("POST", path, Response("", 502), after=True)
    assert posted(samples.slower()).exit_code == 0
    (body,) = github.bodies(7)
    assert body.count("## ❌ SLOWER") == 1, "a check run that is there twice does no harm"


def test_a_report_that_is_refused_is_told_where_that_is_wanted(github, posted):
    github.pull(7, SHA)
    refused = posted('{"verdict": "SAME"}')
    assert refused.exit_code == 3
    assert github.calls == []
    refused = posted('{"verdict": "@all http://evil.example"}', "--missing", "absent")
    assert refused.exit_code == 3
    (body,) = github.bodies(7)
    assert "CANNOT TELL: the report is refused: format is missing" in body
    assert "http://evil" not in body


def test_links_of_a_stranger_are_dropped(github, posted):
    github.pull(7, SHA)
    posted(samples.hostile())
    for text in (*github.bodies(7), github.checks[0]["output"]["summary"]):
        assert "x.example" not in text
        assert "<script" not in text


def test_a_link_is_refused(github, posted, tmp_path):
    (tmp_path / "other.json").symlink_to("/etc/passwd")
    shown = CliRunner().invoke(main, ["report", str(tmp_path / "other.json"), "--post", SHA])
    assert shown.exit_code == 3
    assert "is a link; a report is a plain file" in shown.stderr


# The text of the comment: within the limit, cut where nothing breaks.


FOLDED = "## x\n\n<details><summary>s</summary>\n\none\n\ntwo\n\n</details>\n\n<sub>end</sub>"
PARTS = st.lists(st.sampled_from(["## a", "<details>", "</details>", "text", "ü" * 30, "<sub>e</sub>"]))


@pytest.mark.parametrize("name", ["x -->", MARKER, "a\n</details>\n<details>\n"])
def test_a_report_breaks_no_other_section(name):
    def text(words):
        cases = tuple(dataclasses.replace(case, case=words, evidence=(words,)) for case in samples.SLOWER_CASES)
        return markdown.section(Report(Judgement(Verdict.SAME, words, cases), title=words))

    assert len(blocks(text(name))) == len(blocks(text("harmless")))
    assert comment_text({"Ridgeline": text(name)}).splitlines().count(MARKER) == 1


@pytest.mark.parametrize("number", [1, 3, 12])
def test_a_comment_is_within_the_limit_whatever_it_holds(number):
    long = markdown.section(dataclasses.replace(samples.slower(), title="long"))
    table = "## long\n\n" + "\n\n".join(["| ä |" * 700] * 60) + f"\n\n{long}"
    body = comment_text({f"p{i}": table for i in range(number)})
    assert len(body.encode()) <= LIMIT
    assert (body.startswith(MARKER), body.count(CUT), body.count("## long\n")) == (True, number, number)


def test_only_blocks_are_left_out():
    assert blocks(FOLDED) == ["## x", FOLDED[6:-16], "<sub>end</sub>"]
    assert shortened(FOLDED, 100) == FOLDED
    long = FOLDED.replace("one", "one" * 100)
    assert shortened(long, 109) == f"## x\n\n{CUT}\n\n<sub>end</sub>"
    assert shortened(long, 50) == CUT


@given(PARTS, st.integers(0, 400))
def test_shortened_text_is_within_its_limit(parts, limit):
    text = "\n\n".join(parts)
    assert len(shortened(text, limit).encode()) <= max(limit, len(CUT))
    assert "\n\n".join(blocks(text)) == text


# The one comment on a pull request, against the stand-in; `test_client` has what can go wrong with each call.

ONE, TWO = f"{MARKER}\none", f"{MARKER}\ntwo"


def keep(client, body=ONE):
    return write_comment(client, 7, MARKER, body)


@pytest.mark.parametrize("there", [ONE, ONE + "\n", ONE.replace("\n", "\r\n")])
def test_unchanged_is_not_edited(github, client, there):
    github.comment(7, there)
    assert not keep(client)
    assert (github.told("PATCH"), github.told("POST", "issues")) == ([], [])


@pytest.mark.parametrize(("body", "author"), [(f"{MARKER}\nmine now", "mallory"), (f"see {MARKER}", BOT)])
def test_a_comment_that_is_not_ours_is_left_alone(github, client, body, author):
    github.comment(7, body, author=author)
    assert keep(client)
    assert github.bodies(7) == [body, ONE]


def test_of_duplicates_the_oldest_stays(github, client):
    oldest = github.comment(7, ONE)["id"]
    github.comment(7, "a person", author="someone")
    github.comment(7, ONE)
    github.comment(7, TWO)
    assert keep(client, TWO)
    assert github.bodies(7) == [TWO, "a person"]
    assert github.comments[7][0]["id"] == oldest


def test_an_app_writes_its_comment_anew(github, client):
    github.author = "my-ridgeline[bot]"
    assert [keep(client), keep(client, TWO)] == [True, True]
    assert github.bodies(7) == [TWO]


def test_every_pull_request_with_this_head(github, client):
    github.pull(7, SHA)
    github.pull(9, SHA, fork=True)
    github.pull(11, SHA, state="closed")
    github.pull(13, "f" * 40)
    assert pull_requests(client, SHA) == [7, 9]


@pytest.mark.parametrize("status", [401, 403, 422])
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_refusal_is_said(github, client, method, status):
    if method == "PATCH":
        github.comment(7, TWO)
    github.fault(method, "comments", said(status, "locked"), times=9)
    with pytest.raises(GitHubError, match=f"{method} .*: {status} .*locked"):
        keep(client)


@pytest.mark.parametrize("sha", ["HEAD", "0123", SHA.upper(), SHA + "/../x", SHA + "\n"])
def test_only_full_hashes(github, posted, sha):
    refused = posted(samples.same(), sha=sha)
    assert (refused.exit_code, github.calls) == (3, [])
    assert "is not a full commit hash" in refused.stderr
