"""The command line: examples that parse, usage errors that leave with 3, verdicts that leave with their code."""

from __future__ import annotations

import ast
import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ci.__main__ import FORMERLY, GROUPS, HIDDEN, VERBS, main
from ci.commands import doctor as examination
from ci.commands.outcome import check_recordable
from ci.git.repository import Commit, LocalCheckout, Repository
from ci.harness import MeasurePlan
from ci.judging import reach
from ci.options import PASS, USAGE, Given
from tests.ci import made_trials
from tests.kit import ROOT, commit, git, repository, ridgeline, said

RECORDINGS, README = ROOT / "tests/recordings/h200", ROOT / "README.md"


def command(words):
    """The verb that a command line begins with, of one word or two, its command, and what follows."""
    verb, found, rest = main.resolve_command(click.Context(main), words)
    assert verb is not None
    assert found is not None
    return verb, found, rest


def examples(verb):
    epilog = command(verb.split())[1].epilog or ""
    return [
        shlex.split(re.split(r"  +", line.strip())[0])[1:]
        for line in epilog.splitlines()
        if line.strip().startswith("ridgeline ")
    ]


def parse(words):
    """Parse a command line without carrying it out."""
    verb, found, rest = command(words)
    return found.make_context(verb, rest)


PAGES = [README, *sorted((ROOT / ".github/guides").glob("*.md"))]


def commands_of(page):
    blocks = re.findall(
        r"```sh\n(.*?)```", page.read_text().replace("$(git rev-parse HEAD)", "0" * 40), flags=re.DOTALL
    )
    lines = [re.split(r" (?:#|>|\|\|?)", line)[0].strip() for block in blocks for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("ridgeline ")]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_an_example_that_parses(verb):
    shown = ridgeline(*verb.split(), "--help")
    assert shown.exit_code == 0
    assert "Example" in shown.output
    assert examples(verb), verb
    for words in examples(verb):
        assert command(words)[0] == verb
        parse(words)


def test_help_shows_what_a_newcomer_needs_in_the_group_where_people_look():
    shown = ridgeline("--help").stdout
    alone = re.findall(
        r"^  (\w+)  +\S", shown.partition("Verbs of two words")[0].partition("-h, --help")[2], re.MULTILINE
    )
    assert len(alone) <= 16
    assert [*alone, *HIDDEN] == sorted((v for v in VERBS if " " not in v), key=[*alone, *HIDDEN].index)
    for title, group in list(GROUPS.items())[:4]:
        part = shown[shown.index(f"\n{title}:\n") :].partition("\n\n")[0]
        assert re.findall(r"^  (\w+)  +", part, re.MULTILINE) == [verb for verb in group if verb not in HIDDEN]
    below = dict(
        re.findall(r"^  (\w+) +.*: (\w+(?:, \w+)*)\.$", shown.partition("Verbs of two words")[2], re.MULTILINE)
    )
    assert below["events"] == "list, ack, accept"
    assert {f"{first} {second}" for first, named in below.items() for second in named.split(", ")} == {
        verb for verb in VERBS if " " in verb
    }


@pytest.mark.parametrize("verb", ["ab", "run", "adopt"])
def test_a_newcomer_reads_at_most_fourteen_options(verb):
    usual, _, rare = ridgeline(verb, "--help").stdout.partition("\nOptions:\n")[2].partition("\nRarely needed:\n")
    assert 8 <= len(re.findall(r"^  -", usual, re.MULTILINE)) <= 14
    assert "--seed" in rare


@pytest.mark.parametrize("group", ["events", "jobs", "records", "ci"])
def test_a_group_shows_its_verbs(group):
    own = [verb for verb in VERBS if verb.startswith(f"{group} ")]
    for asked in ([group, "--help"], [group, "-h"]):
        done = ridgeline(*asked)
        assert (done.exit_code, re.findall(rf"^  ({group} \w+)  ", done.stdout, re.MULTILINE)) == (0, own)
    assert ridgeline(group, "no_such_verb").exit_code == 3


@pytest.mark.parametrize(("old", "new"), [*FORMERLY.items(), ("events", "events list"), ("jobs", "jobs list")])
def test_a_verb_goes_by_its_name_of_old_and_is_listed_by_that_of_today(old, new):
    assert command([old, "--json"])[1:] == (command(new.split())[1], ["--json"])
    assert old in ("events", "jobs") or not re.search(rf"^  {old}  ", ridgeline("--help").stdout, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_ridgeline_command_of_a_page_parses_under_its_name_of_today(page):
    found = commands_of(page)
    assert found or page.name in ("measuring.md", "h200.md"), "which tell, and show nothing to do"
    for words in found:
        assert command(words)[0] not in FORMERLY
        parse(words)


def draw(tmp_path, head):
    """A replay file: the first trials of a recording, with one of its arms as head."""
    lines = gzip.decompress((RECORDINGS / "ab_trials_gpu0.jsonl.gz").read_bytes()).splitlines()[:8]
    rows = list(map(json.loads, lines))
    for row in rows:
        row["cases"] = {case: {"base": arms["base"], "head": arms[head]} for case, arms in row["cases"].items()}
    return made_trials.write(tmp_path / "replay.jsonl", *rows)


@pytest.mark.parametrize(("head", "code", "verdict"), [("same", 0, "SAME"), ("head3", 1, "SLOWER")])
def test_a_replay_leaves_with_the_code_of_its_verdict(tmp_path, head, code, verdict):
    done = ridgeline("ab", "--replay", str(draw(tmp_path, head)), "--json")
    assert done.exit_code == code, done.output
    answer = json.loads(done.stdout)
    assert answer["verdict"] == verdict
    assert {"case", "verdict", "ratio", "ci_low", "ci_high", "trials", "rounds"} <= answer["cases"][0].keys()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), "No space left on device; make room, and run it again"),
        (KeyError("surprise"), "KeyError: 'surprise'; this is a defect of Ridgeline"),
        (
            OSError("red \x1b[31m, bell \x07, surrogate \ud800, override \u202e" + "x" * 10**6),
            r"red \x1b[31m, bell \x07, surrogate \ud800, override \u202e",
        ),
    ],
    ids=("foreseen", "a crash of ours is no regression", "foreign words cannot reach the terminal"),
)
def test_an_error_leaves_with_3_and_a_sentence(monkeypatch, error, said):
    def fail(*_):
        raise error

    monkeypatch.setattr(examination, "diagnose", fail)
    done = ridgeline("doctor")
    assert (done.exit_code, said in done.output) == (3, True)
    assert ("Traceback" in done.output) == isinstance(error, KeyError)
    assert len(done.output) < 11_000


def test_a_record_of_what_belongs_to_no_commit_is_refused():
    done = ridgeline("run", "--set", "num_warps=8")
    assert done.exit_code == 3
    assert "--out trials.jsonl` writes a file" in done.output
    tree = LocalCheckout("head", Path(), Commit("1" * 40, 0, ""), ("a.py",))
    check_recordable(Given(record=False), [tree], MeasurePlan(knobs=("a=1",)))
    for plan, named in ((MeasurePlan(knobs=("a=1",)), "--set"), (MeasurePlan(), "a.py")):
        with pytest.raises(click.UsageError, match=named):
            check_recordable(Given(record=True), [tree], plan)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("chek", "there is no verb 'chek': did you mean `ridgeline check`? `ridgeline --help` lists the verbs"),
        ("adop", "did you mean `ridgeline adopt`?"),
        ("comand", "did you mean `ridgeline command`?"),
        ("records ad", "did you mean `ridgeline records add`? `ridgeline records --help` lists the verbs"),
        ("qqq", "there is no verb 'qqq'; `ridgeline --help` lists the verbs"),
    ],
)
def test_a_verb_that_is_not_there_names_the_nearest(typed, said):
    done = CliRunner().invoke(main, typed.split(), prog_name="ridgeline")
    assert (done.exit_code, said in done.output) == (3, True), done.output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (f"run --seed {2**63}", "is not in the range"),
        ("run --deadline 1e9", "is not in the range 0.1<=x<=86400"),
        (f"run --commit-date {10**30} --commit {'a' * 40}", "is not in the range"),
        ("run --out .", "is a directory"),
        (f"run --out {README}/t.jsonl", "cannot be written"),
        (f"verify --out {README}/c.jsonl", "cannot be written"),
        (f"check --report {README}/report", "cannot be written"),
        ("verify --heap ipx", "'ipx' is not one of 'auto', 'torch', 'ipc'"),
    ],
)
def test_options_are_checked_before_anything_is_measured(arguments, why, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    done = ridgeline(*arguments.split())
    assert done.exit_code == 3
    assert why in said(done)


def test_measuring_needs_neither_asv_nor_the_packages_of_judging():
    """On a GPU node there may be Python, torch, Triton, numpy, click and rich, and nothing else."""
    verbs = "import ci.__main__, ci.commands.run, ci.commands.doctor, sys"
    code = f"{verbs}; print([m for m in sys.modules if '.' not in m])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(ast.literal_eval(done.stdout))
    heavy = "asv asv_runner pandas scipy pyarrow httpx filelock jinja2 tenacity torch"
    assert not loaded & {*heavy.split()}


# ---- verify -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_verify_checks_this_repository_and_times_nothing(tmp_path):
    out = tmp_path / "checks.jsonl"
    words = ["verify", "--kernel", "gemm", "--case", "n4096_k4096_m1_fp16", "--backend", "torch", "--backend", "blas"]
    dry = ridgeline(*words, "--out", str(out), "--dry-run")
    assert dry.exit_code == 0
    assert dry.output.endswith(f"and append what comes of it to {out}\n")
    assert not out.exists()
    (tmp_path / "below").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "ci", *words, "--tree", str(ROOT), "--out", "../checks.jsonl", "--json"],
        cwd=tmp_path / "below",
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert json.loads(done.stdout)["backends"][0]["cases"] == {"ok": 1}
    [line] = [json.loads(text) for text in out.read_text().splitlines()]
    assert {name: arm["status"] for name, arm in line["arms"].items()} == {"torch": "ok", "blas": "ok"}


# ---- run ----------------------------------------------------------------------------------------------------------


# What `ridgeline check` compares with, in clones of all kinds; nothing is measured.


@pytest.fixture
def root(tmp_path, monkeypatch):
    files = {"ridgeline.toml": 'kernels = ["perf"]\n', "perf/__init__.py": "", "perf/k.py": "a = 0\n"}
    folder = repository(tmp_path / "mine", **files)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("GITHUB_BASE_REF", raising=False)
    return folder


def base(*words):
    """The commit that HEAD would be compared with, as `check` names it."""
    done = ridgeline("check", "--dry-run", *words)
    assert done.exit_code == PASS, done.output
    return said(done).partition(" against ")[2].partition(",")[0]


def short(folder, revision):
    return git(folder, "rev-parse", revision)[:8]


def test_pointers_of_lfs_are_named_with_the_command_that_fetches_them(root):
    def pointer(digit):
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digit * 64}\nsize 1\n"

    def doubts(revision):
        repository = Repository(root)
        sides = repository.checkout(revision, "base"), repository.working_tree()
        return reach.doubts(MeasurePlan(), reach.of_checkouts(*sides), sides, ())

    declared = "from ridgeline.spec import Kernel\nk = Kernel('k')\n"
    commit(root, **{".gitattributes": "*.bin filter=lfs\n", "perf/w.bin": "weights\n", "perf/k.py": declared})
    commit(root, **{"perf/w.bin": pointer("a")})
    commit(root, **{"perf/w.bin": pointer("b")})
    for revision, begins in (
        ("HEAD~2", "head lacks what base has"),
        ("HEAD^", "what changed in perf/w.bin was not run"),
    ):
        [why] = doubts(revision)
        assert why.startswith(begins)
        assert "git lfs pull" in why
    commit(root, **{"perf/k.py": f"{declared}a = 1\n"})
    assert doubts("HEAD^") == [], "it is the same on both sides"


def test_an_operator_that_neither_side_declares_is_refused_before_anything_is_compiled(root):
    commit(root, **{"perf/k.py": "from ridgeline.spec import Kernel\nk = Kernel('k')\n"})
    done = ridgeline("check", "--kernel", "kk")
    assert (done.exit_code, "no kernel 'kk'; known: k" in said(done)) == (USAGE, True)
    assert "code of" not in done.output
    commit(root, **{"ridgeline.toml": 'kernels = ["perf"]\nrenamed = {"old" = "kk"}\n'})
    done = ridgeline("check")
    assert (done.exit_code, 'new name "kk", which head does not declare (there are k)' in said(done)) == (USAGE, True)


def test_a_name_that_is_two_things_is_refused_with_both(root):
    git(root, "tag", "topic")
    commit(root, **{"perf/k.py": "a = 1\n"})
    git(root, "branch", "-q", "topic")
    done = ridgeline("check", "--dry-run", "--base", "topic")
    assert (done.exit_code, "'topic' is a branch and a tag: name heads/topic or tags/topic" in said(done)) == (
        USAGE,
        True,
    )
    assert base("--base", "tags/topic") == short(root, "HEAD^")


def test_without_a_base_nothing_is_measured_and_the_next_step_is_named(root, tmp_path):
    done = ridgeline("check")
    assert (done.exit_code, "commit a change first, or name a base" in said(done)) == (USAGE, True)
