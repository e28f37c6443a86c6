"""Every rendering of every sample against its golden file, and what no golden file can show."""

from __future__ import annotations

import dataclasses
import html
import itertools
import json
import math
import re
import unicodedata

import pytest
from markdown_it import MarkdownIt

from ci.judging.types import CaseVerdict, Floor, Group, Judgement, Verdict
from ci.records.ledger import Explanation, TriedCause
from ci.report import Report, ReportWarning, Side, Skip, json_report, markdown, terminal, words
from ci.report.model import skips_of
from ci.report.run_summary import minutes, seconds_of
from ci.stats import Clocks
from tests.ci.made_trials import failed, parsed, trial
from tests.ci.report import samples

NAMES = ["slower", "same", "broken", "hostile"]


def sample(name):
    return getattr(samples, name)()


@pytest.mark.parametrize("name", ["slower", "broken", "hostile"])
def test_terminal(name, golden):
    golden(f"report/{name}.txt", terminal.render(sample(name), width=120))


def test_ascii(golden):
    text = terminal.render(sample("slower"), width=120, ascii_only=True)
    golden("report/slower_ascii.txt", text)
    assert text.isascii()


@pytest.mark.parametrize("name", ["slower", "same", "broken", "hostile"])
def test_markdown(name, golden):
    golden(f"report/{name}.md", markdown.render(sample(name)))


def test_json(golden):
    golden("report/slower.json", json_report.dumps(sample("slower")))


def test_a_reason_that_many_cases_share_is_one_line():
    """Without names where it is that of all."""
    cases = [
        CaseVerdict(f"k/a/{number}", "k", "a", Verdict.CANNOT_TELL, None, None, None, evidence=("the GPU is used",))
        for number in range(93)
    ]
    report = Report(Judgement(Verdict.CANNOT_TELL, "", tuple(cases)))
    assert [words.told(one) for one in words.evidence(cases)] == ["all 93: the GPU is used"]
    assert str(markdown.render(report)).count("the GPU is used") == 1
    failed = dataclasses.replace(cases[0], case="k/a/x", evidence=("it fails",))
    lines = [words.told(one) for one in words.evidence([failed, *cases])]
    assert lines == ["k/a/x: it fails", "93 cases (k/a/0, k/a/1, k/a/2, ...): the GPU is used"]


@pytest.mark.parametrize("name", NAMES)
def test_json_comes_back_as_the_same_report(name):
    report = sample(name)
    assert json_report.loads(json_report.dumps(report).encode()) == report


# ---- terminal ----


@pytest.mark.parametrize("width", [40, 100])
@pytest.mark.parametrize("name", NAMES)
def test_no_line_is_wider_than_the_terminal(name, width):
    lines = terminal.render(sample(name), width=width).splitlines()
    assert max(map(len, lines)) <= width


def test_without_colour_nothing_is_lost():
    report = sample("slower")
    coloured = re.sub(r"\x1b\[[0-9;]*m", "", terminal.render(report, colour=True))
    assert [line.rstrip() for line in coloured.splitlines()] == terminal.render(report).splitlines()


def test_a_screen_is_not_flooded():
    lines = terminal.render(samples.large(), width=120).splitlines()
    assert len(lines) < 80
    assert "and 1460 more" in "\n".join(lines)


HOSTILE_TEXTS = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "lone \ud800 surrogate \udfff",
    "\u202eright to left\u202c \u2066isolated\u2069",
    "x" * 10_000,
    "a\u2028b\u2029c\x85d\x0be\rf",
    "[bold red]markup[/] [link=http://evil.example]x[/link]",
)


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=["escape", "surrogate", "override", "long", "breaks", "markup"])
def test_foreign_text_is_inert_on_a_terminal(text):
    report = hostile_report(text)
    for shown in (
        terminal.render(report, width=100),
        markdown.render(report),
        terminal.render(report, ascii_only=True),
    ):
        shown.encode("utf-8")
        assert not [char for char in shown if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") and char != "\n"]
        assert not set(shown) & set("\u202e\u202c\u2066\u2069")
        assert len(shown) < 60_000
    assert max(map(len, terminal.render(report, width=100).splitlines())) <= 100
    if "markup" in text:
        assert "[bold red]markup[/]" in terminal.render(report, width=200)
    json_report.dumps(report).encode("utf-8")


def hostile_report(text):
    """Every foreign text of a report is this one."""
    moved = CaseVerdict(text, text, text, Verdict.SLOWER, 1.1, 1.09, 1.11, evidence=(text,), warnings=(text,))
    unsure = dataclasses.replace(moved, verdict=Verdict.CANNOT_TELL, ratio=None, case=text + "2")
    floors = tuple(Floor(text + str(i), text, 0.9, text, "absent") for i in range(4))
    group = Group(text, text, "slower", (text,), 1.1, 1.09, 1.11, text)
    judgement = Judgement(Verdict.SLOWER, text, (moved, unsure), (group,), floors, (text,))
    machine, clocks = {"device": text, "name": text, text: text}, {text: Clocks(throttle=text)}
    warnings = tuple(ReportWarning(text, text + str(i)) for i in range(4))
    side, skipped = Side(text, text, environment={text: text}), (Skip(text, text, text),)
    return Report(judgement, text, side, side, machine, {}, clocks, skipped, warnings, {text: text})


# ---- warnings and floors, grouped ----


def test_a_warning_of_many_cases_is_one_line_and_the_json_keeps_all():
    said = [ReportWarning(f"intermittent collapse: {i} of 39 calls", f"gemm/m{i}") for i in range(4, 9)]
    twice = [ReportWarning("the clock was capped", f"gemm/m{i}") for i in (1, 2)]
    warnings = (*said, *twice, ReportWarning("GPU 0 is shared"), ReportWarning("GPU 1 is shared"))
    report = Report(Judgement(Verdict.SAME, "why"), warnings=warnings)
    for text in (terminal.render(report, width=200), html.unescape(markdown.render(report))):
        lines = [line for line in text.splitlines() if "collapse" in line]
        assert len(lines) == 1
        assert "5 cases (gemm/m4, gemm/m5, gemm/m6, ...): intermittent collapse: 4 of 39 calls (numbers of" in lines[0]
        assert "2 cases (gemm/m1, gemm/m2): the clock was capped\n" in text
        assert "GPU 0 is shared" in text
        assert "GPU 1 is shared" in text
    document = json_report.document(report)
    assert document["warnings"] == [str(warning) for warning in warnings]
    assert json_report.loads(json_report.dumps(report).encode()) == report


def test_floors_that_were_not_timed_are_one_line_per_cause():
    names = [f"gather/triton/w{i}" for i in range(5)]
    same = [CaseVerdict(name, "gather", "triton", Verdict.SAME) for name in names]
    timed = CaseVerdict("gather/triton/t", "gather", "triton", Verdict.SAME, 1.0, 0.99, 1.01)
    floors = [Floor(case, "rccl", 0.95, "it is the reason to exist", "absent") for case in (*names, timed.case)]
    floors.append(Floor("gather/triton/m", "rccl", 0.95, "it is the reason to exist", "missed", 0.9))
    report = Report(Judgement(Verdict.SAME, "why", (*same, timed), floors=tuple(floors)))
    for text in (terminal.render(report, width=240), html.unescape(markdown.render(report))):
        assert text.count("reason to exist") == 1, "the reason stands in the first line it applies to"
        lines = [line for line in text.splitlines() if "floor 0.95 of rccl" in line]
        assert len(lines) == 3
        assert "5 cases (gather/triton/w0, gather/triton/w1, gather/triton/w2, ...): floor 0.95 of rccl: " in lines[0]
        assert "not timed, both sides run equal code; it is the reason to exist" in lines[0]
        assert lines[1].rstrip().endswith("floor 0.95 of rccl: not timed")
        assert "reached 0.900: missed" in lines[2]
    assert len(json_report.document(report)["floors"]) == 7


# ---- markdown ----


def _visible(markdown_text):
    return html.unescape(markdown_text)


@pytest.mark.parametrize(
    "name", ["http://evil.example/|x", "https://evil.example/`y", "WWW.evil.example\\", "a@b.example|"]
)
def test_a_case_named_with_an_address_is_no_link(name):
    case = CaseVerdict(name, name, "triton", Verdict.SLOWER, 1.1, 1.09, 1.11, evidence=(name,))
    shown = html.unescape(markdown.render(Report(Judgement(Verdict.SLOWER, name, (case,)))))
    assert "evil" in shown or "@" in shown
    assert not re.search(r"://evil|(?i:www)\.evil|a@b", re.sub(r"`[^`\n]*`", "", shown.replace(name[-1], "")))


@pytest.mark.parametrize("line", ["# title", "- item", "+ item", "1. item", "> quote", "=== ", "12) x", "---"])
def test_a_line_cannot_start_a_block(line):
    assert re.match(r"&#\d+;", markdown.text(line))
    assert _visible(markdown.text(line)).replace(markdown.NO_JOIN, "") == line.strip()


@pytest.mark.slow
def test_an_underscore_is_escaped_only_where_it_could_open_emphasis():
    assert markdown.text("gemm_all_scatter of __init__ and _x_") == (
        "gemm_all_scatter of &#95;&#95;init&#95;&#95; and &#95;x&#95;"
    )
    rendered, seen = MarkdownIt(), 0
    for letters in itertools.product("a_- *", repeat=6):
        line = "".join(letters)
        shown = rendered.renderInline(markdown.text(f"x {line} x"))
        assert html.unescape(shown) == re.sub(" +", " ", f"x {line} x")
        seen += "a_a" in line
    assert seen > 400, "underscores within words were among them"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("gemm/m64", "`gemm/m64`"),
        ("a|b", "<code>a&#124;b</code>"),
        ("a`b", "<code>a&#96;b</code>"),
        ("", "<code></code>"),
        ("a\nb", "`a b`"),
        ("a\\", "<code>a&#92;</code>"),
    ],
)
def test_names_in_code_style(name, wanted):
    assert markdown.code(name) == wanted


def test_only_https_links_are_links():
    assert markdown.link("run", "https://github.com/o/r/1") == "[run](<https://github.com/o/r/1>)"
    for url in ("http://x.example", "javascript:alert(1)", "https://x.example/> [a](b)", "https://x.example/)"):
        assert "](" not in re.sub(r"`[^`]*`", "", markdown.link("run", url))


def test_a_comment_fits_and_says_what_it_left_out():
    text = markdown.render(samples.large())
    assert len(text) <= 65_536
    assert "1400 more, in the JSON report" in text
    assert text.startswith(markdown.MARKER)


def test_a_comment_of_very_long_evidence_fits():
    evidence = tuple(f"{i} " + "x" * 390 for i in range(100))
    cases = tuple(
        CaseVerdict(f"c{i}", f"k{i}", "b", verdict, 1.1, 1.0, 1.2, evidence=evidence)
        for i, verdict in enumerate(Verdict)
    )
    text = markdown.render(Report(Judgement(Verdict.SLOWER, "much to say", cases)))
    assert len(text) <= markdown.LIMIT + 200
    assert "did not fit" in text
    assert "<sub>" in text


def test_the_heading_names_the_pool():
    assert markdown.section(sample("same"), "mi300x-8").startswith("## ✅ SAME on mi300x-8: ")
    assert markdown.section(sample("same"), "<b>").startswith("## ✅ SAME on &#60;b&#62;: ")


# ---- json ----


def test_numbers_that_are_not_finite_become_null():
    case = CaseVerdict("a", "k", "b", Verdict.CANNOT_TELL, 1.0, 0.5, math.inf, p_value=math.nan)
    text = json_report.dumps(Report(Judgement(Verdict.CANNOT_TELL, "", (case,)), clocks={"base": Clocks(math.nan)}))
    assert json.loads(text, parse_constant=pytest.fail)["cases"][0]["ci_high"] is None
    assert json_report.loads(text.encode()).clocks["base"].sm_clock_mhz is None


def broken_document(change):
    document = json_report.document(sample("slower"))
    change(document)
    return json.dumps(document).encode()


def test_a_file_of_too_many_bytes_is_told_from_one_that_is_no_json(tmp_path):
    (tmp_path / "report.json").write_bytes(b" " * (json_report.SIZE_LIMIT + 5))
    with pytest.raises(json_report.ReportError, match=r"report\.json: larger than"):
        json_report.read(tmp_path / "report.json")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"verdict": NaN}', "NaN"),
        (b'{"verdict": 1e999}', "too large"),
        (b" " * (json_report.SIZE_LIMIT + 1), "larger than"),
        (broken_document(lambda d: d.update(version=2)), "version"),
        (broken_document(lambda d: d.update(verdict="<b>")), "verdict"),
        (broken_document(lambda d: d["cases"][0].update(ratio="1")), "ratio"),
        (broken_document(lambda d: d["head"].update(commit="HEAD")), "commit"),
        (broken_document(lambda d: d["machine"].update(a=[1])), "machine"),
    ],
)
def test_a_file_that_is_not_a_report(data, message):
    with pytest.raises(json_report.ReportError, match=re.escape(message)):
        json_report.loads(data)


@pytest.mark.parametrize("key", ["cases", "case_warnings"])
def test_the_first_of_millions_of_wrong_entries_ends_the_reading(key):
    data = broken_document(lambda document: document.update({key: [0] * 2_000_000}))
    with pytest.raises(json_report.ReportError, match=rf"{key}\[0\]"):
        json_report.loads(data)


# ---- words ----


@pytest.mark.parametrize("name", NAMES)
def test_a_markdown_parser_sees_only_our_structure(name):
    """An independent CommonMark parser finds no link, image or HTML element that we did not write."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown.render(sample(name)))
    flat = [inner for token in tokens for inner in (token, *(token.children or ()))]
    ours = {url for url in sample(name).links.values() if url.startswith("https://github.com/")}
    assert {str(token.attrGet("href")) for token in flat if token.type == "link_open"} == ours
    assert not [token for token in flat if token.type == "image"]
    raw = " ".join(token.content for token in flat if token.type.startswith("html"))
    elements = set(re.findall(r"</?(\w+)", raw))
    assert elements <= {"details", "summary", "sub", "code"}
    assert all(token.tag in {"h2", "h3"} for token in flat if token.type == "heading_open")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_the_words_of_the_comment_and_runs_nothing(name):
    whole = markdown.html_page(sample(name))
    elements = set(re.findall(r"</?([a-z]\w*)", whole))
    assert elements.isdisjoint({"script", "img", "iframe", "link", "form", "object", "svg"})
    assert "default-src 'none'" in whole
    told = {line for line in markdown.section(sample(name)).splitlines() if line.startswith("### ")}
    for line in told:
        heading = MarkdownIt("commonmark").renderInline(line.removeprefix("### ")).replace(markdown.NO_JOIN, "")
        assert f"<h3>{heading}</h3>" in whole
    assert f"<title>{sample(name).verdict}" in whole


# Why cases are slower, in the terminal, in the comment, and in the JSON and back.


CASE = "gemm/triton/m64"
SENTENCE = (
    "kernels/gemm/device.py:95, split `cg` → `<wt>`: putting it back leaves +0.02 % [-0.05, +0.09] of +1.02 %: proven"
)
EXPLANATION = Explanation(
    (CASE, "gemm/triton/m256"),
    CASE,
    "proven",
    SENTENCE,
    (
        TriedCause("knob", "group_m", "8 → 4", "no effect", 0.01, 1.0101, 1.0090, 1.0112, 3),
        TriedCause("file", "kernels/gemm/config.py", "", "does not build alone", why="raises an error: @ImportError"),
        TriedCause("file", "kernels/gemm/device.py", "", "explains all", 0.98, 1.0002, 0.9995, 1.0009, 3),
    ),
    ("cache modifiers: store nt 0 → 1", "vector registers spilled: 0 → 2"),
    3,
    9,
    61.0,
)
REPORT = Report(
    Judgement(Verdict.SLOWER, "1 case", (CaseVerdict(CASE, "gemm", "triton", Verdict.SLOWER, 1.0102, 1.0095, 1.0109),)),
    explanations=(EXPLANATION,),
)


def test_the_terminal_says_the_cause_first_and_then_what_else_was_tried():
    text = " ".join(terminal.render(REPORT, width=200).split())
    why = text[text.index("Why 2 cases (gemm/triton/m64, gemm/triton/m256)") :]
    places = [
        why.index(part) for part in ("proven", "knob group_m (8 → 4): no effect", "machine code: cache modifiers")
    ]
    assert places == sorted(places)
    assert "file kernels/gemm/config.py: does not build alone: raises an error" in why
    assert "file kernels/gemm/device.py: explains all, 98 %; +0.02 % [-0.05, +0.09] is left" in why
    assert "measured on gemm/triton/m64: 3 experiments, 9 trials, 61 s" in why


def test_the_comment_has_it_as_inert_text():
    text = markdown.render(REPORT)
    assert "### Why: 2 cases (gemm/triton/m64, gemm/triton/m256)" in text
    assert "proven**" in text
    assert "<wt>" not in text
    assert "@ImportError" not in text


def test_the_json_gives_the_same_report_back():
    assert json_report.loads(json_report.dumps(REPORT).encode()) == REPORT


def test_what_options_made_of_one_commit_has_no_command_of_two_commits():
    slower = samples.slower()
    assert words.command(slower).startswith("ridgeline ab 9f8e7d6c5b4a 0123456789ab --kernel gemm")
    assert words.command(dataclasses.replace(slower, head=slower.base)) == ""


# Where the seconds of a run went.


# Where the seconds of a run went: all of them, in the order of a trial, as a sentence, a table and JSON.


def lasting(**more):
    return parsed({**trial(), **more})


SPENT = {"rounds": 2.0, "checks": 1.0, "start": 0.5}


def test_the_seconds_of_all_trials_add_up_to_those_of_the_command():
    found = seconds_of([lasting(spent_s=SPENT, ahead_s=4.0), lasting(spent_s=SPENT, ahead_s=0.0)], whole_s=15.0)
    assert found
    assert list(found.phases) == ["rounds", "checks", "start", "before the trials", "outside of measuring"]
    assert (found.whole_s, found.measuring_s) == (15.0, 4.0)
    most = "before the trials 4.0 s, outside of measuring 4.0 s, checks 2.0 s"
    assert found.sentence() == f"measuring: 4.0 of 15.0 s (27 %); most of the rest: {most}"
    assert found.as_json()["measuring_s"] == 4.0


def test_without_trials_there_is_no_table():
    assert seconds_of([]) is None


def test_an_operator_that_this_machine_cannot_measure_takes_no_phase_from_the_others():
    nothing = {"m16": {"head/triton": failed("skipped"), "head/blas": failed("unsupported")}}
    found = seconds_of(
        [
            lasting(spent_s=SPENT, ahead_s=1.0),
            parsed({**trial(nothing, 1, kernel="reduce_scatter"), "spent_s": {}, "ahead_s": 2.0}),
            parsed({**trial(nothing, 2, kernel="all_to_all"), "spent_s": {}, "ahead_s": 0.0}),
        ],
        whole_s=8.0,
    )
    assert found
    assert found.phases == {**SPENT, "before the trials": 3.0, "outside of measuring": 1.5}
    assert found.whole_s == 8.0
    assert found.sentence().startswith("measuring: 2.0 of 8.0 s (25 %)")


def test_one_reason_is_one_line_whatever_operators_it_holds_for():
    ck = {"m16": {"head/blas": failed("unsupported", "needs a GPU of AMD")}}
    hung = {"m16": {"head/blas": failed("hang", "60 s"), "head/triton": failed("unsupported", "needs a GPU of AMD")}}
    operators = {"forward": ck, "dgrad": ck, "wgrad": hung}
    trials = [parsed(trial(cases, n, kernel=name)) for n, (name, cases) in enumerate(operators.items())]
    assert [(skip.what, skip.status) for skip in skips_of(trials)] == [
        ("{forward/blas,dgrad/blas,wgrad/triton}/m16", "unsupported"),
        ("wgrad/blas/m16", "hang"),
    ]


def test_minutes():
    assert [minutes(one) for one in (3.4, 99.0, 170.0)] == ["3 s", "99 s", "3 min"]
