"""Which pull requests a commit heads, and the one comment on each that is kept up to date.

The comment is posted by a job that has a write token and runs our default branch; the report comes from a job that ran
a stranger's code.  So the report is read as something hostile (ci.report.json_report), its links are replaced by ours,
and the pull request is asked of GitHub by the commit the platform itself names: never taken from the report.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.reach.tree import of_folder
from ci.github.client import GitHub, GitHubError
from ci.judging.types import CaseVerdict, Group, Judgement, Verdict
from ci.report import json_report, markdown, words
from ci.report.json_report import ReportError
from ci.report.markdown import LIMIT, MARKER
from ci.report.model import Report
from ci.report.words import plain

# The parts of one comment: a section for each pool, told apart by hidden markers.  Pure functions on its text.
#
# A marker stands on a line of its own; foreign text never does (`ci.report.markdown`), so a report cannot forge one.


TOPIC = re.compile(r"[\w.-]{0,60}")
"""What may name a section: a pool of `ci/runners.toml`, "" for the pull-request job itself."""
_MARKER = re.compile(r"^<!-- ridgeline:section:([\w.-]*) ([0-9a-f]{40}) -->$", re.MULTILINE)
_OPENS, _ENDS = re.compile(r"^<details>", re.MULTILINE), re.compile(r"^</details>$", re.MULTILINE)
"""At the beginning of a line, where foreign text never stands."""
MARKER_BYTES = 140
"""Of a section's marker and the lines about it: 60 for the topic, 40 for the commit, the rest fixed."""
CUT = "_More did not fit into this comment; the JSON report has everything._"


@dataclasses.dataclass(frozen=True)
class Section:
    """What one pool says of one commit (40 hex digits), as Markdown."""

    topic: str
    sha: str
    text: str

    @property
    def heading(self) -> str:
        """The first heading, which is the verdict."""
        return next((line[3:] for line in self.text.splitlines() if line.startswith("## ")), "")


def parsed(body: str) -> dict[str, Section]:
    """The sections of a comment by topic; text before the first marker is none."""
    parts = _MARKER.split(body.replace("\r\n", "\n"))[1:]
    found = (
        Section(topic, sha, text.strip("\n")) for topic, sha, text in zip(*(parts[i::3] for i in range(3)), strict=True)
    )
    return {section.topic: section for section in found}


def merged(bodies: Iterable[str], own: Section) -> str:
    """The comment with our section in it: all others stay, those of an earlier commit as one line.

    bodies: the comment that is there, and duplicates of it that are going to be deleted, oldest first.
    """
    known = {topic: section for body in bodies for topic, section in parsed(body).items()}
    known[own.topic] = own
    current = {topic: section if section.sha == own.sha else _earlier(section) for topic, section in known.items()}
    return dumps(current)


def dumps(sections: Mapping[str, Section], limit: int = LIMIT) -> str:
    """The text of the comment, at most `limit` bytes of UTF-8: a section that is longer than its share is cut.

    The share depends on the number of sections only, so that two writers cut alike and end with the same text.
    """
    share = (limit - len(MARKER)) // max(len(sections), 1) - MARKER_BYTES
    blocks = (
        f"<!-- ridgeline:section:{topic} {section.sha} -->\n{shortened(section.text.strip(), share)}"
        for topic, section in sorted(sections.items())
    )
    return "\n\n".join([MARKER, *blocks]) + "\n"


def _earlier(section: Section) -> Section:
    if section.text.startswith("_Of the earlier commit"):
        return section
    return dataclasses.replace(section, text=f"_Of the earlier commit {section.sha[:8]}:_ {section.heading}")


def shortened(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8, by leaving out whole blocks before the last, and saying so."""
    *kept, last = blocks(text)
    if len(text.encode()) <= limit:
        return text
    while len(kept) > 1 and len("\n\n".join([*kept, CUT, last]).encode()) > limit:
        kept.pop()
    short = "\n\n".join([*kept, CUT, last])
    return short if len(short.encode()) <= limit else CUT


def blocks(text: str) -> list[str]:
    """Parts that can be left out without breaking the rest: paragraphs, tables, whole <details>."""
    found: list[str] = []
    depth = 0
    for part in text.split("\n\n"):
        if depth:
            found[-1] += f"\n\n{part}"
        else:
            found.append(part)
        depth += len(_OPENS.findall(part)) - len(_ENDS.findall(part))
    return found


BOT = "github-actions[bot]"
"""Author of comments posted with a workflow's own token; taken where GitHub does not say whose the token is."""
ROUNDS = 10
"""Times that a comment is written anew because another writer changed it meanwhile; eight pools may end at once."""
SETTLE_S = 2.0
"""Seconds after which what was written is read again: longer than another writer takes from reading to writing."""


def pull_requests(github: GitHub, sha: str) -> list[int]:
    """The open pull requests whose head is this commit (40 hex digits), in order.

    GitHub's own list by commit does not know every fork, so all open pull requests are searched too.
    """
    if not re.fullmatch(r"[0-9a-f]{40}", sha):
        raise GitHubError(f"{sha!r} is not a full commit hash (40 hex digits)")
    numbers = {
        int(found["number"])
        for path in (f"commits/{sha}/pulls", "pulls?state=open&sort=created&direction=asc")
        for found in github.items(path, none_for=(404, 422))
        if found.get("state") == "open" and found["head"]["sha"] == sha
    }
    return sorted(numbers)


class Comments:
    """The comments that we keep.  Those of anybody else stay as they are, whatever marker they carry."""

    def __init__(self, github: GitHub) -> None:
        self.github = github
        self._author: str | None = None
        self._foreign: set[int] = set()

    @property
    def author(self) -> str:
        """Our login: that of a GitHub App for its token, of a person for theirs."""
        if self._author is None:
            self._author = _login(self.github)
        return self._author or BOT

    def keep_section(self, number: int, marker: str, section: Section) -> str:
        """Our section in the one comment of a pull request; other sections in it stay."""
        return self.keep(number, marker, functools.partial(merged, own=section))

    def keep_body(self, number: int, marker: str, body: str) -> str:
        """`body` as the one comment with this marker."""
        return self.keep(number, marker, lambda bodies: body)

    def keep(self, number: int, marker: str, made: Callable[[Sequence[str]], str]) -> str:
        """Make `made(bodies)` the one comment of ours that starts with `marker`; bodies: those that are there.

        Returns what was done: "created", "updated" or "unchanged".  Of several the oldest stays.  What was written is
        read again after SETTLE_S, and written again where another writer came between: whoever writes last has read
        what the others wrote, or reads it then.  After a fault the comments are read again first, so that neither an
        old text nor a second comment is written.
        """
        action, written = "", None

        def settled() -> bool:
            """Read, and write where that is not what it should be; whether nothing was to be written."""
            nonlocal action, written
            mine = self._listed(number, marker, written)
            body = made([comment["body"] for comment in mine])
            if not body.startswith(marker):
                raise GitHubError("the comment must start with its marker; a later run could not find it otherwise")
            if mine and _same(mine[0]["body"], body):
                for one in mine[1:]:
                    self.github.delete(f"issues/comments/{one['id']}")
                return True
            action = action or ("updated" if mine else "created")
            written = self._change(mine[0], body) if mine else self._add(number, body)
            action = action if written else ""
            return False

        for _ in range(ROUNDS):
            if self.github.patiently(f"the comment on {number}", settled):
                return action or "unchanged"
            self.github.pause(SETTLE_S)
        raise GitHubError(f"pull request {number}: the comment did not settle in {ROUNDS} rounds; others write it too")

    def _listed(self, number: int, marker: str, written: Any = None) -> list[Any]:
        """Ours with this marker, oldest first; what was just written may not be listed yet."""
        found = {comment["id"]: comment for comment in self.github.items(f"issues/{number}/comments")}
        if written and written["id"] not in found:
            again = self.github.get(f"issues/comments/{written['id']}", none_for=(404, 410))
            found |= {again["id"]: again} if again else {}
        ours = (comment for comment in found.values() if self._is_mine(comment, marker))
        return sorted(ours, key=lambda comment: int(comment["id"]))

    def _change(self, comment: Any, body: str) -> Any:
        """One attempt to write a comment; None where it is gone or turned out not to be ours."""
        try:
            return self.github.attempt("PATCH", f"issues/comments/{comment['id']}", {"body": body})
        except GitHubError as error:
            if error.status == 403 and not self._author:
                self._foreign.add(comment["id"])
            elif error.status not in (404, 410):
                raise
            return None

    def _add(self, number: int, body: str) -> Any:
        """One attempt to make a comment; where GitHub did not say who we are, its author does."""
        comment = self.github.attempt("POST", f"issues/{number}/comments", {"body": body})
        self._author = self._author or str((comment.get("user") or {}).get("login") or "")
        return comment

    def _is_mine(self, comment: Any, marker: str) -> bool:
        login = (comment.get("user") or {}).get("login")
        starts = (comment.get("body") or "").startswith(marker)
        return login == self.author and starts and comment["id"] not in self._foreign


def _login(github: GitHub) -> str:
    """Whose the token is, "" if GitHub does not say.

    REST does not tell an App its own name, GraphQL does: "slug[bot]" (seen in fullsend-ai/fullsend#1953, 2026-06).
    """
    try:
        answer = github.graphql("query { viewer { login } }")
        return str(answer["viewer"]["login"])
    except (GitHubError, TypeError, KeyError):
        return ""


def _same(one: str, other: str) -> bool:
    """Whether GitHub's text is ours: it may come back with other ends of lines."""
    return one.replace("\r\n", "\n").rstrip() == other.replace("\r\n", "\n").rstrip()


# Which lines of a pull request a moved kernel is shown on: the changed lines of its operator, else its declaration.
#
# Pure but for reading our own checkout.  Paths and patches come from GitHub's list of changed files.


LEVEL = {
    Verdict.BROKEN: "failure",
    Verdict.SLOWER: "failure",
    Verdict.NOT_COMPARABLE: "warning",
    Verdict.FASTER: "notice",
}
CASES = 20
"""Cases that one annotation names; the report has all."""
MOST = 200
"""Annotations of one check run; a report of 20,000 kernels is no help."""
FILES = 3
"""Changed files of an operator that one cause is shown in."""
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@dataclasses.dataclass(frozen=True)
class ChangedLines:
    """A file of the pull request and its first changed lines in the new version, counted from 1."""

    path: str
    first: int = 1
    last: int = 1


@dataclasses.dataclass(frozen=True)
class Annotation:
    """A remark on lines of a file, as a check run has it."""

    path: str
    start_line: int
    end_line: int
    annotation_level: str
    title: str
    message: str


def remarks(report: Report, changed: Sequence[ChangedLines], root: Path) -> list[Annotation]:
    """For each cause, worst first, where it is to be looked for.  root: our own checkout, for declarations."""
    packages = list(of_folder(root).homes)
    ours = (path.relative_to(root).as_posix() for package in packages for path in (root / package).glob("**/*.py"))
    homes = {home for path in (*(one.path for one in changed), *ours) for home in _homes(path, packages)}
    found = (
        _annotation(group, [case for case in cases if case.kernel == kernel], place)
        for group, cases in words.groups_of(report)
        for kernel in dict.fromkeys(case.kernel for case in cases)
        for place in _places(kernel, changed, homes, root)
    )
    return list(itertools.islice(found, MOST))


def _places(kernel: str, changed: Sequence[ChangedLines], homes: Iterable[str], root: Path) -> list[ChangedLines]:
    """Where a kernel is: `grouped_gemm_wgrad` is in the folder or module `grouped_gemm`, the longest name that fits."""
    fitting = [home for home in homes if f"{kernel}_".startswith(f"{home.rpartition('/')[2]}_")]
    home = max(fitting, key=lambda home: (len(home.rpartition("/")[2]), home), default="")
    own = (one for one in changed if home and (one.path == f"{home}.py" or one.path.startswith(f"{home}/")))
    return sorted(own, key=lambda one: one.path)[:FILES] or (_declaration(kernel, home, root) if home else [])


def _homes(path: str, packages: Sequence[str]) -> Iterator[str]:
    """Of a file of a package with kernels, the folder or module just below the package that it is in."""
    for package in packages:
        if path.startswith(f"{package}/"):
            name = path[len(package) + 1 :].partition("/")[0].removesuffix(".py")
            if name and not name.startswith("_"):
                yield f"{package}/{name}"


def _declaration(kernel: str, home: str, root: Path) -> list[ChangedLines]:
    """The line of our checkout that names the kernel, else the first line of its file."""
    for path in (root / f"{home}.py", root / home / "__init__.py"):
        if path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            named = re.compile(rf"""["']{re.escape(kernel)}["']""")
            line = next((number for number, text in enumerate(lines, 1) if named.search(text)), 1)
            return [ChangedLines(path.relative_to(root).as_posix(), line, line)]
    return []


def _annotation(group: Group | None, cases: Sequence[CaseVerdict], place: ChangedLines) -> Annotation:
    verdict = cases[0].verdict
    what = words.cause(group, cases)
    listed = [_line(case) for case in cases[:CASES]]
    more = [f"and {len(cases) - CASES} more, in the report"] if len(cases) > CASES else []
    title = words.plain(f"{verdict}: {what}", 250)
    return Annotation(place.path, place.first, place.last, LEVEL[verdict], title, "\n".join(listed + more))


def _line(case: CaseVerdict) -> str:
    measured = f"{words.percent(case.ratio)} {words.interval(case.ci_low, case.ci_high)}"
    said = measured if case.ratio is not None else words.plain(words.evidence([case])[0].text, 400)
    return f"{words.plain(case.case, 160)}: {said}"


def changed_lines(path: str, patch: str) -> ChangedLines:
    """The first run of added lines of a file's patch in the unified format; its first line where none was added."""
    hunk = _HUNK.search(patch)
    if not hunk:
        return ChangedLines(path)
    number, first = int(hunk[1]), 0
    for line in patch[hunk.end() :].split("\n")[1:]:
        if line.startswith("+"):
            first = first or number
        elif first or line.startswith("@@"):
            break
        number += not line.startswith(("-", "\\"))
    last = number - 1 if first else int(hunk[1])
    return ChangedLines(path, max(first or int(hunk[1]), 1), max(last, 1))


# A check run on the commit: the verdict, the report, and annotations on the lines of the kernels that moved.


BATCH = 50
"""Annotations that one call may bring (docs.github.com, "Update a check run", 2026-11-22)."""
SUMMARY = 65_000
"""Bytes of UTF-8; GitHub refuses a summary of more than 65,535 characters."""
CONCLUSION = {Verdict.BROKEN: "failure", Verdict.SLOWER: "failure", Verdict.FASTER: "success", Verdict.SAME: "success"}
"""All else is neutral: it neither passes nor blocks."""


@dataclasses.dataclass(frozen=True)
class CheckRun:
    """What is said of a commit (40 hex digits) under a name; summary: Markdown."""

    name: str
    sha: str
    verdict: Verdict
    title: str
    summary: str
    annotations: Sequence[Annotation] = ()
    details_url: str = ""

    @property
    def digest(self) -> str:
        """The same for the same text: so that a lost answer, or a second run of a job, makes no second check run."""
        notes = [dataclasses.astuple(one) for one in self.annotations]
        return hashlib.sha256(repr((self.verdict, self.title, self.summary, notes)).encode()).hexdigest()[:40]


def post_check(github: GitHub, check: CheckRun) -> str:
    """Make the check run, unless it is there already; its address.  Needs `checks: write`."""
    output = {"title": plain(check.title, 200), "summary": shortened(check.summary, SUMMARY)}
    value = {"name": check.name, "head_sha": check.sha, "external_id": check.digest, "status": "completed"}
    value |= {"details_url": check.details_url} if check.details_url else {}
    value |= {"conclusion": CONCLUSION.get(check.verdict, "neutral")}
    found = _found(github, check)
    made = found or github.create("check-runs", value | {"output": output}, lambda: _found(github, check))
    path = f"check-runs/{made['id']}"
    for start in range(_annotated(made), len(check.annotations), BATCH):
        batch = [dataclasses.asdict(one) for one in check.annotations[start : start + BATCH]]

        def added(wanted: int = start + len(batch)) -> Any:
            """GitHub appends: what was added already must not be added again."""
            one = github.get(path)
            return one if _annotated(one) >= wanted else None

        github.create(path, {"output": {**output, "annotations": batch}}, added, method="PATCH")
    return str(made.get("html_url", ""))


def _annotated(made: Any) -> int:
    return int(made["output"].get("annotations_count") or 0)


def _found(github: GitHub, check: CheckRun) -> Any:
    """The check run with this very text."""
    listed = github.items(f"commits/{check.sha}/check-runs?filter=all", "check_runs", none_for=(404, 422))
    fitting = (one for one in listed if one.get("external_id") == check.digest and one.get("name") == check.name)
    return next(fitting, None)


def changed_in(github: GitHub, sha: str, pull_requests: Iterable[int]) -> list[ChangedLines]:
    """The files that a commit's first pull request changes, with their first changed lines; none without one."""
    for number in pull_requests:
        files = github.items(f"pulls/{number}/files", none_for=(404, 422))
        return [changed_lines(str(one["filename"]), str(one.get("patch") or "")) for one in files]
    return []


# A report on its way to the people: one section in the pull request's comment, one check run, one step summary.


@dataclasses.dataclass(frozen=True)
class PostTarget:
    """Where a report goes.  sha: the commit, 40 hex digits.  topic: the pool, "" for the pull-request job itself.

    check: name of the check run, "" for none.
    """

    sha: str
    topic: str = ""
    check: str = ""

    def __post_init__(self) -> None:
        if not TOPIC.fullmatch(self.topic):
            raise ReportError(f"topic {self.topic!r}: use at most 60 letters, digits, and . _ -")


def read_report(path: Path, links: Mapping[str, str], missing: str = "") -> Report:
    """The report in a file, with our links instead of its own.

    missing: what to say where there is no file (the machine is absent, the job did not start), "" to refuse.
    Raises ReportError for a file that is not a sound report, OSError if it cannot be read.
    """
    if path.is_symlink():
        raise ReportError(f"{path} is a link; a report is a plain file")
    if missing and not path.exists():
        return unmeasured(missing, links)
    return dataclasses.replace(json_report.read(path), links=dict(links))


def unmeasured(why: str, links: Mapping[str, str]) -> Report:
    """The report of a machine on which nothing was measured: "absent: no runner of this pool took the job"."""
    return Report(Judgement(Verdict.CANNOT_TELL, why), links=dict(links))


def post(report: Report, target: PostTarget, github: GitHub, root: Path) -> dict[int, str]:
    """Put a report on the commit itself, and on every open pull request whose head it is; what was done, by number.

    root: our own checkout, which says where kernels are declared.  What GitHub refuses (a check run, the comment on a
    locked pull request) keeps nothing else from being posted; then GitHubError names all of it.
    """
    numbers = pull_requests(github, target.sha)
    text = markdown.section(report, target.topic)
    comments, section = Comments(github), Section(target.topic, target.sha, text)
    refused: list[GitHubError] = []
    posted: dict[int, str] = {}
    with _kept(refused):
        if target.check:
            _check(report, target, github, numbers, text, root)
    for number in numbers:
        with _kept(refused):
            posted[number] = comments.keep_section(number, markdown.MARKER, section)
    if refused:
        raise GitHubError("; ".join(map(str, refused)), refused[0].status)
    return posted


@contextlib.contextmanager
def _kept(refused: list[GitHubError]) -> Iterator[None]:
    """Keep an error for later."""
    try:
        yield
    except GitHubError as error:
        refused.append(error)


def _check(report: Report, target: PostTarget, github: GitHub, numbers: list[int], text: str, root: Path) -> None:
    notes = remarks(report, changed_in(github, target.sha, numbers), root)
    title = f"{report.verdict}: {report.judgement.why}"
    run = next(iter(report.links.values()), "")
    post_check(github, CheckRun(target.check, target.sha, report.verdict, title, text, notes, run))


def add_summary(report: Report, topic: str = "") -> bool:
    """Append a report to the summary of the workflow's step; whether there is one (GITHUB_STEP_SUMMARY)."""
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if not place:
        return False
    with open(place, "a", encoding="utf-8") as file:
        file.write(markdown.section(report, topic) + "\n")
    return True
