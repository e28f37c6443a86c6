"""`ridgeline report --post`: from a report file, or from its absence, to comment, check run and step summary."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ci.__main__ import main
from ci.github import client as client_module
from ci.github import comment
from ci.report import json_report
from ci.report.model import Report
from tests.ci.report import samples
from tests.standins.github import StandIn, said

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def posted(github: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs the verb on the stand-in: posted(report, *options)."""
    monkeypatch.setattr(comment, "SETTLE_S", 0.0)
    for name, value in {"REPOSITORY": github.repository, "TOKEN": "secret", "API_URL": github.url}.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))

    def run(report: Report | str | None, *options: str) -> Result:
        file = tmp_path / "report.json"
        file.unlink(missing_ok=True)
        if report is not None:
            file.write_text(report if isinstance(report, str) else json_report.dumps(report))
        return CliRunner().invoke(main, ["report", str(file), "--post", SHA, *options])

    return run


def test_comment_check_and_summary(github: StandIn, posted, tmp_path: Path) -> None:
    github.pull(7, SHA)
    github.pull(8, SHA, fork=True)
    options = ("--topic", "mi300x", "--check", "ridgeline / mi300x", "--summary", "--link", "run=https://x.example/1")
    done = posted(samples.slower(), *options)
    assert (done.exit_code, done.output) == (0, "created on pull request #7\ncreated on pull request #8\n")
    (body,), (check,) = github.bodies(7), github.checks
    assert github.bodies(8) == [body]
    assert "## ❌ SLOWER on mi300x: gemm takes 2.5 % longer" in body
    assert "[run](<https://x.example/1>)" in body
    assert (check["conclusion"], check["details_url"]) == ("failure", "https://x.example/1")
    assert check["output"]["summary"].startswith("## ❌ SLOWER on mi300x")
    assert check["annotations"][0]["path"] == "kernels/gemm/__init__.py"
    assert (tmp_path / "summary.md").read_text().startswith("## ❌ SLOWER on mi300x")
    assert posted(samples.slower(), *options).output == "unchanged on pull request #7\nunchanged on pull request #8\n"
    assert len(github.checks) == 1
    assert github.unknown == []


def test_one_section_per_pool_and_an_absent_one_delays_none(github: StandIn, posted) -> None:
    github.pull(7, SHA)
    absent = ("--missing", "absent: no runner of this pool took the job within 30 minutes")
    assert posted(None, "--topic", "mi355x", "--check", "ridgeline / mi355x", *absent).exit_code == 0
    posted(samples.same(), "--topic", "mi300x", "--check", "ridgeline / mi300x", *absent)
    posted(samples.faster())
    (body,) = github.bodies(7)
    assert "## ❔ CANNOT TELL on mi355x: absent: no runner of this pool took the job within 30 minutes" in body
    assert "## ✅ SAME on mi300x" in body
    assert "## ✅ FASTER: " in body
    assert [check["conclusion"] for check in github.checks] == ["neutral", "success"]


def test_a_machine_that_was_absent_and_came_back(github: StandIn, posted) -> None:
    github.pull(7, SHA)
    posted(None, "--topic", "mi300x", "--missing", "absent: no runner")
    posted(samples.same(), "--topic", "mi300x", "--missing", "absent: no runner")
    (body,) = github.bodies(7)
    assert "absent" not in body


def test_a_report_that_is_refused_is_told_where_that_is_wanted(github: StandIn, posted) -> None:
    github.pull(7, SHA)
    refused = posted('{"verdict": "SAME"}')
    assert refused.exit_code == 3
    assert github.calls == []
    refused = posted('{"verdict": "@all http://evil.example"}', "--missing", "absent")
    assert refused.exit_code == 3
    (body,) = github.bodies(7)
    assert "CANNOT TELL: the report is refused: at " in body
    assert "http://evil" not in body


def test_links_of_a_stranger_are_dropped(github: StandIn, posted) -> None:
    github.pull(7, SHA)
    posted(samples.hostile(), "--check", "ridgeline")
    for text in (*github.bodies(7), github.checks[0]["output"]["summary"]):
        assert "x.example" not in text
        assert "<script" not in text


def test_a_commit_that_heads_no_pull_request_has_a_check_run_only(github: StandIn, posted) -> None:
    assert posted(samples.same(), "--check", "ridgeline").output == "nothing: no open pull request\n"
    assert (len(github.checks), github.comments) == (1, {})


def test_what_is_refused_keeps_nothing_else_from_being_posted(github: StandIn, posted) -> None:
    github.pull(7, SHA)
    github.pull(8, SHA, fork=True)
    github.fault("POST", "check-runs", said(403, "no", x_accepted_github_permissions="checks=write"))
    github.fault("POST", "issues/7/comments", said(403, "the conversation is locked"))
    refused = posted(samples.same(), "--check", "ridgeline")
    assert refused.exit_code == 3
    assert "checks=write" in refused.stderr
    assert "the conversation is locked" in refused.stderr
    assert (len(github.bodies(7)), len(github.bodies(8))) == (0, 1)


def test_a_dry_run_posts_nothing(github: StandIn, posted, tmp_path: Path) -> None:
    github.pull(7, SHA)
    shown = posted(samples.slower(), "--check", "ridgeline", "--summary", "--dry-run")
    assert shown.output == "would post SLOWER on #7\n"
    assert {call.method for call in github.calls} == {"GET"}
    assert not (tmp_path / "summary.md").exists()


def test_a_link_is_refused(github: StandIn, posted, tmp_path: Path) -> None:
    (tmp_path / "other.json").symlink_to("/etc/passwd")
    shown = CliRunner().invoke(main, ["report", str(tmp_path / "other.json"), "--post", SHA])
    assert shown.exit_code == 3
    assert "is a link; a report is a plain file" in shown.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--topic", "a b"), "topic 'a b'"),
        (("--topic", "x" * 61), "at most 60"),
        (("--topic", f"x\n<!-- ridgeline:section:y {SHA} -->"), "topic"),
    ],
)
def test_a_topic_is_a_plain_word(github: StandIn, posted, options: tuple[str, ...], message: str) -> None:
    shown = posted(samples.same(), *options)
    assert (shown.exit_code, github.calls) == (3, [])
    assert message in shown.stderr


def test_what_goes_with_post_only() -> None:
    shown = CliRunner().invoke(main, ["report", "x.json", "--check", "name"])
    assert shown.exit_code == 3
    assert "go with --post SHA" in shown.stderr


@pytest.mark.parametrize("name", ["GITHUB_REPOSITORY", "GITHUB_TOKEN"])
def test_settings_that_are_missing_are_named(name: str) -> None:
    environ = {"GITHUB_REPOSITORY": "o/r", "GITHUB_TOKEN": "t", name: ""}
    with pytest.raises(client_module.GitHubError, match=f"{name} not set"):
        client_module.of_environment(environ)


def test_a_summary_outside_a_workflow(posted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    shown = posted(samples.same(), "--summary")
    assert shown.exit_code == 3
    assert "GITHUB_STEP_SUMMARY is not set" in shown.stderr
