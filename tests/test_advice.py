"""Every command that Ridgeline prints can be pasted: those in all texts of the sources, and in real output."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import click
import pytest

import ci
from ci.__main__ import FORMERLY, LISTED_ALONE, VERBS, main
from ci.report import markdown, words
from ci.report.model import Side
from tests.ci.bisect import toys
from tests.ci.report import samples
from tests.kit import HANGS_S, ROOT, mostly_nightly

PACKAGES = ("kernels", "benchmarks", "ci", "dashboards")

COMMAND = re.compile(
    rf"(?P<tick>`|<code>)?(?<![/.\w])ridgeline (?P<words>(?:{'|'.join((*VERBS, *FORMERLY, *LISTED_ALONE))})\b(?!:)"
    r"(?(tick)[^`<]*|[^`<\n;,()|]*?(?=\s{2}|[\n;,()|`<]|$)))"
)
"""A command of ours in a text: between backticks, in a page's <code>, or up to the end of its part of the sentence."""

PLACEHOLDER = re.compile(r"\[?\b(?!HEAD\b)[A-Z][A-Z_]+\b\]?")

NOTHING_ALONE = {"records add", "gate", "bisect", "jobs submit"}
"""Verbs that take arguments which their parser does not ask for: alone they end with a usage error."""


def commands(text):
    """The commands in a text, without the word `ridgeline`; comments and headings name verbs, they advise nothing."""
    advising = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    return [found["words"].rstrip(" .:") for found in COMMAND.finditer(advising)]


def fault(words):
    """Why a command that is printed cannot be pasted, "" if it can."""
    if PLACEHOLDER.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", words)):
        return "a placeholder is not filled in"
    verb, command, arguments = main.resolve_command(click.Context(main), shlex.split(words))
    assert command is not None
    if verb in FORMERLY:
        return f"its name of today is {FORMERLY[verb]}"
    if {"-h", "--help"} & set(arguments):
        return ""
    if not arguments and verb in NOTHING_ALONE:
        return "it lacks arguments; `--help` is named where they are not known"
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    context = click.Context(command, info_name=verb, allow_interspersed_args=command.allow_interspersed_args)
    try:
        given, left, _ = command.make_parser(context).parse_args(list(own))
    except click.UsageError as error:
        return error.format_message()
    needed = (one for one in command.params if one.required)
    missing = [one.name for one in needed if one.value_is_missing(given.get(str(one.name)))]
    return f"it lacks {', '.join(map(str, missing))}" if missing else f"{left} are too many" if left else ""


def texts(path):
    """The texts of a source that can be printed: not what stands alone as a statement, which is documentation."""
    if path.suffix != ".py":
        yield path.read_text(encoding="utf-8")
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    alone = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in alone | inner:
            yield re.sub(r"{{ \w+ }}|{\w*}", "1", node.value)


def sources():
    found = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*")))
    return [path for path in found if path.suffix in (".py", ".html", ".j2") and "node_modules" not in path.parts]


@pytest.mark.slow
def test_every_command_in_a_text_can_be_pasted():
    advice = [(path, words) for path in sources() for text in texts(path) for words in commands(text)]
    assert len(advice) > 100, "they are looked for where they stand"
    assert {(str(path), words): said for path, words in advice if (said := fault(words))} == {}


def test_a_report_names_the_command_that_shows_it_again():
    worse = samples.slower()
    shown = "ab 9f8e7d6c5b4a 0123456789ab --kernel gemm --tier sweep"
    assert words.command(worse).startswith(f"ridgeline {shown} --case gemm/")
    for report in (worse, samples.broken()):
        [command] = [one for one in commands(markdown.render(report)) if one in words.command(report)]
        assert fault(command) == ""
    unknown = dataclasses.replace(worse, base=Side(), head=Side())
    assert words.command(unknown) == ""
    assert words.command(samples.hostile()) == "", "what a stranger calls his kernel is no part of a command"


# ---- real output ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A folder within a repository of twenty commits with a kernel for a CPU."""
    repository = tmp_path_factory.mktemp("advice") / "repository"
    toys.made(repository)
    (repository / "deep/er").mkdir(parents=True)
    return repository / "deep/er"


def started(folder, words):
    argv = [sys.executable, *ci.VERBS, *shlex.split(words)]
    return subprocess.Popen(
        argv, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def advised(verb, printed):
    """The commands in what a verb printed, each of which can be pasted; options that it names are its own."""
    printed = " ".join(printed.split())
    found = commands(printed)
    assert {words: said for words in found if (said := fault(words))} == {}
    command = main.resolve_command(click.Context(main), verb)[1]
    assert command is not None
    own = {option for one in command.params for option in one.opts} | {"--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", re.sub(r"`[^`]*`", "", printed))) <= own
    return found


@pytest.mark.nightly
def test_an_interrupted_check_goes_on_by_the_command_that_it_prints(toy):
    check = started(toy, "check --base v0 --kernel rows --trials 3 --rounds 11 --no-why")
    trials = toy.parents[1] / ".ridgeline/trials"
    deadline = time.monotonic() + HANGS_S
    while not any(file.stat().st_size for file in trials.glob("*.jsonl")):
        assert check.poll() is None, check.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    check.send_signal(signal.SIGINT)
    printed = check.communicate(timeout=HANGS_S)[0]
    assert "interrupted" in printed
    [onward] = advised(["check"], printed)
    done = started(toy, onward)
    printed = done.communicate(timeout=HANGS_S)[0]
    assert done.returncode in (0, 1, 2), printed
    [file] = trials.glob("*.jsonl")
    numbers = [line["trial"] for line in map(json.loads, file.read_text().splitlines())]
    assert numbers == list(range(len(numbers))), "what was finished is not measured again"
    assert len(numbers) >= 3
    advised(["check"], printed)
    made = {path.name for path in toy.parents[1].iterdir()}
    assert ".ridgeline" in made
    assert list(toy.iterdir()) == [], "nothing is written where the command was typed"


OUTPUTS = """
bisect v0 v20 --case rows/r4 --trials 1 --rounds 11 --smallest 0.5
bisect v0
bisect v20 v0 --case rows/r4
bisect --event 3f2a
gate v0 v1
records add
report none.json
tune rows
sweep rows
study none
table none
jobs none
jobs submit
jobs submit -- nothing
doctor
events
ab nothing
ab --replay none
detect none
run --kernel nothing
verify --kernel nothing
plot sweep --kernel rows --out x.png
adopt none.py
bringup --only nothing
records export --dry-run
init --dry-run
ci pools
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", mostly_nightly(OUTPUTS.strip().splitlines(), *OUTPUTS.strip().splitlines()[::4]))
def test_what_a_verb_prints_can_be_pasted(toy, words):
    printed = started(toy, words).communicate(timeout=HANGS_S)[0]
    assert "Traceback" not in printed
    advised(words.split(), printed)
