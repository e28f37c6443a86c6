"""The text of the comment: sections stay apart, stay within the limit, and cannot be forged."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.github.comment import CUT, Section, blocks, dumps, merged, parsed, shortened
from ci.judging.types import Judgement, Verdict
from ci.report import markdown
from ci.report.markdown import LIMIT, MARKER
from ci.report.model import Report
from tests.ci.report import samples

SHA, OLD = "a" * 40, "b" * 40
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
    assert again["mi300x"].text == "_Of the earlier commit aaaaaaaa:_ new"


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
