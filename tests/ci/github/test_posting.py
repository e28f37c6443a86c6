"""`ridgeline report --post`: from a report file, or from its absence, to comment, check run and step summary."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ci.__main__ import main
from ci.github import client as client_module
from ci.github.client import GitHubError
from ci.github.comment import BOT, CUT, Comments, Section, blocks, dumps, merged, parsed, shortened
from ci.judging.types import Judgement, Verdict
from ci.report import json_report, markdown
from ci.report.markdown import LIMIT, MARKER
from ci.report.model import Report
from tests.ci.report import samples
from tests.standins.github import StandIn, said

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def posted(environ: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs the verb on the stand-in: posted(report, *options)."""
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


@pytest.mark.parametrize("topic", ["a b", "x" * 61, f"x\n<!-- ridgeline:section:y {SHA} -->"])
def test_a_topic_is_a_plain_word(github: StandIn, posted, topic: str) -> None:
    shown = posted(samples.same(), "--topic", topic)
    assert (shown.exit_code, github.calls) == (3, [])
    assert "use at most 60 letters" in shown.stderr


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


# The text of the comment: sections stay apart, stay within the limit, and cannot be forged.


OLD = "b" * 40
FOLDED = "## x\n\n<details><summary>s</summary>\n\none\n\ntwo\n\n</details>\n\n<sub>end</sub>"
PARTS = st.lists(st.sampled_from(["## a", "<details>", "</details>", "text", "ü" * 30, "<sub>e</sub>"]))


def report_section(topic: str, sha: str = SHA) -> Section:
    return Section(topic, sha, markdown.section(samples.slower(), topic))


def test_what_is_written_is_read() -> None:
    sections = {topic: report_section(topic) for topic in ("", "mi300x", "mi325x-8.gpu_1")}
    body = dumps(sections)
    assert body.startswith(MARKER)
    assert {topic: section.text.strip() for topic, section in sections.items()} == {
        topic: section.text for topic, section in parsed(body.replace("\n", "\r\n")).items()
    }


def test_a_section_replaces_its_own_and_leaves_the_others() -> None:
    body = merged([dumps({"a": Section("a", SHA, "one"), "b": Section("b", SHA, "two")})], Section("a", SHA, "three"))
    assert [section.text for section in parsed(body).values()] == ["three", "two"]
    assert merged([body], Section("a", SHA, "three")) == body


def test_what_is_of_an_earlier_commit_is_one_line() -> None:
    first = merged([dumps({"h200": report_section("h200", OLD)})], Section("mi300x", SHA, "## new"))
    again = parsed(merged([first], Section("mi325x", "c" * 40, "## newer")))
    told = "❌ SLOWER on h200: gemm takes 2.5 % longer on 3 of 13 cases"
    assert again["h200"].text == f"_Of the earlier commit bbbbbbbb:_ {told}"
    assert again["mi300x"].text == "_Of the earlier commit 01234567:_ new"


def test_duplicates_lose_no_section() -> None:
    bodies = [dumps({name: Section(name, SHA, name)}) for name in "ab"]
    assert sorted(parsed(merged(bodies, Section("c", SHA, "c")))) == ["a", "b", "c"]


def test_a_comment_from_before_sections_is_replaced() -> None:
    assert parsed(merged([f"{MARKER}\n\n## old"], Section("", SHA, "new"))).keys() == {""}


@pytest.mark.parametrize("name", ["x -->", f"<!-- ridgeline:section:h200 {SHA} -->", "a\n</details>\n<details>\n"])
def test_a_report_cannot_forge_a_section(name: str) -> None:
    def text(said: str) -> str:
        cases = tuple(dataclasses.replace(case, case=said, evidence=(said,)) for case in samples.SLOWER_CASES)
        return markdown.section(Report(Judgement(Verdict.SAME, said, cases), title=said))

    assert list(parsed(dumps({"cpu": Section("cpu", SHA, text(name))}))) == ["cpu"]
    assert len(blocks(text(name))) == len(blocks(text("harmless")))


@pytest.mark.parametrize("number", [1, 3, 12])
def test_a_comment_is_within_the_limit_whatever_it_holds(number: int) -> None:
    long = markdown.section(dataclasses.replace(samples.slower(), title="long"))
    table = "## long\n\n" + "\n\n".join(["| ä |" * 700] * 60) + f"\n\n{long}"
    sections = {f"p{i}": Section(f"p{i}", SHA, table) for i in range(number)}
    body = dumps(sections)
    assert len(body.encode()) <= LIMIT
    assert len(parsed(body)) == number
    assert body.count(CUT) == number
    assert merged([body], sections["p0"]) == body, "a second writing changes nothing"


def test_only_whole_blocks_are_left_out() -> None:
    assert blocks(FOLDED) == ["## x", FOLDED[6:-16], "<sub>end</sub>"]
    assert shortened(FOLDED, 100) == FOLDED
    long = FOLDED.replace("one", "one" * 100)
    assert shortened(long, 105) == f"## x\n\n{CUT}\n\n<sub>end</sub>"
    assert shortened(long, 50) == CUT


@given(PARTS, st.integers(0, 400))
def test_shortened_text_is_within_its_limit(parts: list[str], limit: int) -> None:
    text = "\n\n".join(parts)
    assert len(shortened(text, limit).encode()) <= max(limit, len(CUT))
    assert "\n\n".join(blocks(text)) == text


# Pools that end at once write one comment: whatever the order of their calls, it ends as one, with every section.
#
# The order of calls is hypothesis's; each writer runs in a thread of its own and calls next when it is its turn.
# The one thing that is taken for granted is what SETTLE_S is for: that a writer who has read has written before another
# one, who began to wait after that reading, has waited long enough.


@dataclasses.dataclass
class Turns:
    """Whose call is next.  waiting: writer -> since which call it waits.  reading: writer -> since which call."""

    order: list[int]
    alive: set[int]
    waiting: dict[int, int | None] = dataclasses.field(default_factory=dict)
    reading: dict[int, int] = dataclasses.field(default_factory=dict)
    calls: int = 0
    turn: int | None = None
    changed: threading.Condition = dataclasses.field(default_factory=threading.Condition)

    def take(self, who: int, passes_time: bool = False) -> None:
        """Wait for one's turn."""
        with self.changed:
            self.waiting[who] = self.calls if passes_time else None
            self._next()
            self.changed.wait_for(lambda: self.turn == who)
            self.turn = None
            del self.waiting[who]
            self.calls += 1

    def leave(self, who: int) -> None:
        """The writer has ended."""
        with self.changed:
            self.alive.discard(who)
            self.reading.pop(who, None)
            self._next()

    def _next(self) -> None:
        if self.turn is None and self.alive and self.alive == set(self.waiting):
            able = sorted(who for who in self.alive if self._able(who))
            self.turn = able[self.order.pop() % len(able) if self.order else 0]
            self.changed.notify_all()

    def _able(self, who: int) -> bool:
        since = self.waiting[who]
        return since is None or not any(began < since for other, began in self.reading.items() if other != who)


@dataclasses.dataclass
class OneComment:
    """The comments of one pull request, as one writer's client sees them."""

    who: int
    turns: Turns
    comments: dict[int, str]

    def graphql(self, query: str) -> dict:
        return {"viewer": {"login": BOT}}

    def patiently(self, what: str, step: Callable[[], bool]) -> bool:
        return step()

    def pause(self, seconds: float) -> None:
        self.turns.take(self.who, passes_time=True)

    def items(self, path: str) -> list[dict]:
        self.turns.take(self.who)
        self.turns.reading[self.who] = self.turns.calls
        return [self._one(number) for number in self.comments]

    def get(self, path: str, none_for: tuple[int, ...]) -> dict | None:
        number = int(path.rpartition("/")[2])
        return self._one(number) if number in self.comments else None

    def attempt(self, method: str, path: str, value: dict) -> dict:
        self.turns.take(self.who)
        self.turns.reading.pop(self.who, None)
        number = int(path.rpartition("/")[2]) if method == "PATCH" else self.turns.calls + 1
        if method == "PATCH" and number not in self.comments:
            raise GitHubError("gone", 404)
        self.comments[number] = value["body"]
        return self._one(number)

    def delete(self, path: str) -> None:
        self.turns.take(self.who)
        self.comments.pop(int(path.rpartition("/")[2]), None)

    def _one(self, number: int) -> dict:
        return {"id": number, "body": self.comments[number], "user": {"login": BOT}}


def written(order: Sequence[int], pools: int) -> dict[int, str]:
    """The comments after every pool has written its section, its calls in this order."""
    comments: dict[int, str] = {}
    turns = Turns(list(order), set(range(pools)))

    def write(who: int) -> None:
        try:
            github = OneComment(who, turns, comments)
            Comments(github).keep_section(7, MARKER, Section(f"pool-{who}", SHA, f"of {who}"))  # type: ignore[arg-type]
        finally:
            turns.leave(who)

    threads = [threading.Thread(target=write, args=(who,), daemon=True) for who in range(pools)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    return comments


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=60))
@example([])
@example([0, 1, 2] * 20)
def test_every_section_of_three_pools_is_in_the_one_comment(order: list[int]) -> None:
    (body,) = written(order, pools=3).values()
    assert {name: one.text for name, one in parsed(body).items()} == {f"pool-{who}": f"of {who}" for who in range(3)}


def test_eight_pools_in_step() -> None:
    (body,) = written(list(range(8)) * 40, pools=8).values()
    assert sorted(parsed(body)) == [f"pool-{who}" for who in range(8)]
