"""Children: their progress, their other lines, their end by themselves, by a signal and by Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import lifetime
from ci import harness
from ci.git.repository import Commit, LocalCheckout
from ci.harness import INTERRUPTED, USAGE, ChildExit, MeasureError, MeasurePlan, follow, measure, produce, query

HEAD = LocalCheckout("head", Path("/h"), Commit("1" * 40, 5, ""), changed=("a.py",))


def child(text):
    return [sys.executable, "-c", f"import json, os, signal, sys, time\n{text}"]


def console(terminal=False):
    return Console(file=io.StringIO(), force_terminal=terminal, width=80, legacy_windows=False)


def shown(where):
    assert isinstance(where.file, io.StringIO)
    return where.file.getvalue()


@pytest.fixture
def benchmarks(tmp_path, monkeypatch):
    """A `benchmarks` program whose text the test writes."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").touch()
    (tmp_path / "benchmarks" / "lifetime.py").symlink_to(lifetime.__file__)
    monkeypatch.setattr(harness, "HARNESS", tmp_path)
    return tmp_path / "benchmarks" / "__main__.py"


def test_children_inherit_the_folders_of_pythonpath_that_lie_outside_of_the_repository(
    benchmarks, tmp_path, monkeypatch
):
    inside, vendor = tmp_path / "project" / "lib", tmp_path / "vendor"
    for folder in (tmp_path / "project" / ".git", inside, vendor):
        folder.mkdir(parents=True)
    benchmarks.write_text("import json, os; print(json.dumps({'paths': os.environ['PYTHONPATH'].split(os.pathsep)}))")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(inside), "lib", "../../vendor"]))
    monkeypatch.chdir(inside)
    assert query("where")["paths"] == [str(tmp_path), str(vendor)]


# ---- following ----


def test_progress_moves_bars_and_other_lines_are_kept_and_shown():
    events = [{"what": "gemm", "done": 1, "total": 2}, {"arch": "gfx942", "done": 1, "total": 2}]
    lines = [json.dumps(event) for event in events] + ["a note", "", '{"what": "no progress"}']
    where = console()
    ended = follow(child(f"print({chr(10).join(lines)!r}, file=sys.stderr)"), where)
    assert ended == ChildExit(0, ("a note", '{"what": "no progress"}'))
    assert shown(where).splitlines() == list(ended.said)


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (rb"\x1b[31mred\x1b[0m\ttab [bold]", r"\x1b[31mred\x1b[0m    tab [bold]"),
        (rb"caf\xe9", r"caf\xe9"),
        (b"x" * 100, "x" * 100),
        (b"y" * 5000, "y" * 2000 + " ... (3000 more characters)"),
    ],
)
def test_foreign_lines_are_plain_text(raw, wanted):
    where = console()
    follow(child(f"sys.stderr.buffer.write(b'{raw.decode()}')"), where)
    assert shown(where) == wanted + "\n"


@pytest.mark.parametrize(("end", "how"), [("sys.exit(4)", "exit code 4"), ("os.abort()", "killed by SIGABRT")])
def test_how_it_ended_is_said(end, how):
    assert follow(child(end), console()).how == how


@pytest.mark.parametrize("end", ["sys.exit(130)", "signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), 2)"])
def test_an_interrupted_child_interrupts_us(end):
    with pytest.raises(KeyboardInterrupt):
        follow(child(end), console())


def interrupt_when(file):
    """Ctrl-C for this process as soon as the file is there."""

    def wait():
        while not file.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


def test_ctrl_c_reaches_the_whole_group(tmp_path):
    """The child and its own child have time to write their last line."""
    ready, ended = tmp_path / "ready", tmp_path / "ended"
    text = f"""
import subprocess
below = subprocess.Popen([sys.executable, "-c", "import time\\ntry: time.sleep(60)\\nexcept KeyboardInterrupt: pass"])
time.sleep(0.3)
open({str(ready)!r}, "w").close()
try:
    below.wait()
except KeyboardInterrupt:
    open({str(ended)!r}, "w").write(str(below.wait(60)))
"""
    interrupt_when(ready)
    with pytest.raises(KeyboardInterrupt):
        follow(child(text), console())
    assert ended.read_text() == "0"


def test_a_program_can_be_interrupted_although_we_ignore_ctrl_c(benchmarks):
    """As everything does that a shell starts with `&`: its time limit must end it without SIGKILL."""
    benchmarks.write_text("import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: raise SystemExit(130)")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ended = follow(harness.program("benchmarks"), console(), limit_s=1.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (ended.code, ended.late) == (INTERRUPTED, True)


def test_a_child_that_ignores_ctrl_c_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "GRACE_S", 0.2)
    ready = tmp_path / "ready"
    interrupt_when(ready)
    start = time.monotonic()
    text = f"signal.signal(2, signal.SIG_IGN); open({str(ready)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    with pytest.raises(KeyboardInterrupt):
        follow(child(text), console())
    assert time.monotonic() - start < 300
    with pytest.raises(ProcessLookupError):
        os.kill(int(ready.read_text()), 0)


# ---- measuring ----


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        *((f"raise SystemExit({code})", code, "") for code in (0, 1, 2, 3)),
        ("raise SystemExit(130)", INTERRUPTED, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", USAGE, "broke off: killed by SIGSEGV"),
    ],
)
def test_measuring_returns_the_exit_code_and_a_crash_is_never_a_success(benchmarks, tmp_path, end, code, said):
    where = console()
    benchmarks.write_text(end)
    assert measure([HEAD], MeasurePlan(), tmp_path / "new" / "out.jsonl", where) == code
    assert said in shown(where)


def test_the_command_names_commit_date_and_changes_of_every_side():
    base = LocalCheckout("base", Path("/b"), Commit("2" * 40, 7, ""))
    plan = MeasurePlan(kernels=["gemm", "gather"], cases=["m16"], trials=2, knobs=["x=1"], pythons={"base": "/py"})
    words = harness.command([base, HEAD], plan, Path("/out"))
    pairs = list(zip(words, words[1:], strict=False))
    for role, digit, date in (("base", "2", 7), ("head", "1", 5)):
        told = {"path": f"/{role[0]}", "commit": digit * 40, "date_ms": date, "dirty": role == "head"}
        told |= {"python": "/py"} if role == "base" else {}
        assert ("--tree", f"{role}={json.dumps(told)}") in pairs
    assert [value for flag, value in pairs if flag == "--kernel"] == ["gemm", "gather"]
    assert {("--trials", "2"), ("--set", "x=1"), ("--tier", "pr")} <= set(pairs)
    assert not {"--cache", "--deadline", "--backend", "--heap"} & set(words)
    checked = harness.command([HEAD], MeasurePlan(trials=2, heap="ipc"), Path("/out"), "verify")
    assert "--trials" not in checked
    assert checked[-2:] == ["--heap", "ipc"]


# ---- results and answers ----


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sys.exit('Error: no kernel x')", "^no kernel x$"),
        ("pass", "exit code 0; last it said: it printed nothing"),
        ("open(out, 'w').close(); sys.stderr.write('Error: bad name'); sys.exit(3)", "^bad name$"),
        ("open(out, 'w').close(); os.abort()", "killed by SIGABRT; last it said: it printed nothing"),
    ],
)
def test_without_a_result_the_reason_is_raised(tmp_path, text, why):
    out = tmp_path / "out"
    with pytest.raises(MeasureError, match=why):
        produce(child(f"out = {str(out)!r}\n{text}"), out, console(), "x")


def test_an_answer_is_read_after_other_output(benchmarks):
    benchmarks.write_text("import sys; print('a library says hello'); print('{\"argv\": \"%s\"}' % sys.argv[1:])")
    assert query("list", "--tree", "x") == {"argv": "['list', '--tree', 'x', '--json']"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise SystemExit('no torch here')", r"list` gave no answer: no torch here"),
        ("import os; os.abort()", "killed by SIGABRT"),
        ("print('{broken')", "exit code 0"),
        ("import time; time.sleep(60)", "no answer within 1 s"),
    ],
)
def test_without_an_answer_the_reason_is_raised(benchmarks, text, why):
    benchmarks.write_text(text)
    with pytest.raises(MeasureError, match=why):
        query("list", limit_s=1.0 if "sleep" in text else None)


# ---- asking ----


def test_a_program_that_asks_is_answered_until_it_ends():
    answers = iter(["one", "two", ""])
    text = """
while True:
    print(json.dumps({"asks": "orders"}), file=sys.stderr, flush=True)
    line = sys.stdin.readline().strip()
    if not line:
        break
    print("told", line, file=sys.stderr, flush=True)
"""
    ended = follow(child(text), console(), told=lambda: next(answers))
    assert ended == ChildExit(0, ("told one", "told two"))


def test_what_the_answer_raises_ends_the_program():
    def told():
        raise MeasureError("no more")

    text = "print(json.dumps({'asks': 'x'}), file=sys.stderr, flush=True)\nsys.stdin.readline()\ntime.sleep(600)"
    begin = time.monotonic()
    with pytest.raises(MeasureError, match="no more"):
        follow(child(text), console(), told=told)
    assert time.monotonic() - begin < 300, "interrupted, not waited for"


def test_a_command_is_typed_again_with_other_options(monkeypatch):
    typed = ["ridgeline", "adopt", "a b.py", "--out=x", "--trials", "3", "--case", "--list", "--", "--trials", "8"]
    monkeypatch.setattr(sys, "argv", typed)
    assert harness.again() == "ridgeline adopt 'a b.py' --out=x --trials 3 --case --list -- --trials 8"
    changed = harness.again(out=Path("t.jsonl"), trials=None, kernel=("a", "b"))
    assert changed == "ridgeline adopt 'a b.py' --case --list --out t.jsonl --kernel a --kernel b -- --trials 8"
