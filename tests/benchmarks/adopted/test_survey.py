"""Pairs of two sides' closures, what fits a budget, and what a survey says of a script."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.adopted.session import _add, _untimed
from benchmarks.adopted.survey import (
    CannotRun,
    Chosen,
    NothingTimed,
    ScriptEnd,
    ScriptRun,
    SeenClosure,
    SideSurvey,
    Survey,
    choose,
    own_s,
    refuse,
    warnings,
)
from benchmarks.coordinator.samples import failed_entry
from benchmarks.trial_file import Status
from benchmarks.worker.scripts.skipping import NotPlain, blank
from tests.kit import mostly_nightly


def closure(case, expected_s=1e-3, at_s=0.0, **more):
    backend, _, name = case.rpartition("/")
    return SeenClosure(backend or "script", name, "do_bench", at_s, expected_s=expected_s, **more)  # type: ignore[arg-type]


def survey(of_base, of_head, **ends):
    """Sides whose closures are letters."""
    letters = {"base": of_base, "head": of_head}
    sides = {role: SideSurvey(tuple(map(closure, own)), ends.get(role, ScriptEnd())) for role, own in letters.items()}
    return Survey(sides)


def alike(closures):
    """Sides that have the same."""
    return Survey(dict.fromkeys(("base", "head"), SideSurvey(closures, ScriptEnd())))


def longest_common(one, other):
    """The oracle: the longest subsequence of one that the other has too, by trying all."""
    for length in range(len(one), 0, -1):
        for kept_ in itertools.combinations(one, length):
            rest = iter(other)
            if all(letter in rest for letter in kept_):
                return length
    return 0


@pytest.mark.parametrize(
    ("base", "head"), [("abcd", "abcd"), ("abcd", "bd"), ("abc", "cab"), ("ab", "cd"), ("", "a"), ("abcde", "axcye")]
)
def test_pairs_are_in_an_order_that_both_sides_keep(base, head):
    found = survey(base, head)
    letters = "".join(key.partition("/")[2] for key in found.paired)
    for side in (base, head):
        rest = iter(side)
        assert all(letter in rest for letter in letters)
    assert len(letters) == longest_common(base, head)
    assert {key.partition("/")[2] for key in found.unpaired()} == set(base + head) - set(letters)


def test_what_is_in_another_order_is_told_apart_from_what_one_side_lacks():
    told = survey("abc", "cabd").unpaired()
    assert told == {"script/c": "the two sides time it in another order", "script/d": "only head times it"}


@pytest.mark.parametrize(
    ("of_head", "end", "lost"),
    [
        ("a", ScriptEnd(1, "raised", "AssertionError: x (b.py:3)"), "bc"),
        ("", ScriptEnd(1, "crash", "killed by SIGKILL"), "abc"),
        ("a", ScriptEnd(), ""),
        ("a", ScriptEnd(0, "late", "its survey was ended"), ""),
    ],
)
def test_what_head_no_longer_comes_to_is_broken_there(of_head, end, lost):
    found = survey("abc", of_head, head=end)
    assert "".join(one.case for one in found.lost("head")) == lost
    assert found.lost("base") == ()
    assert bool(found.cut_short()) is (end.kind == "late")
    if lost:
        refuse(found, "b.py")  # there is something to compare
        told = dict(_untimed(found, Chosen((), {}, 0.0), ()))
        assert [told[f"script/{one}"]["head"]["status"] for one in lost] == [end.status] * len(lost)
        assert all(end.why in told[f"script/{one}"]["head"]["why"] for one in lost)


def test_all_pairs_are_timed_without_a_budget_and_fewer_with_a_small_one():
    closures = tuple(closure(f"{backend}/c{index}", 0.1) for backend in "xy" for index in range(10))
    both = alike(closures)
    whole = choose(both, 10, 4, None)
    assert len(whole.timed) == 20
    assert whole.left_out == {}
    half = choose(both, 10, 4, whole.trial_s * 4 / 2)
    assert 2 <= len(half.timed) <= 10
    assert half.trial_s <= whole.trial_s / 2
    backends = [key.partition("/")[0] for key in half.timed]
    assert backends.count("x") == backends.count("y")
    assert {"x/c0", "x/c9"} <= set(half.timed)  # the whole range
    assert set(half.left_out) == {one.key for one in closures} - set(half.timed)


def test_where_not_one_of_each_backend_fits_the_cheapest_are_timed():
    closures = (closure("x/a", 9.0), closure("y/b", 0.1), closure("z/c", 0.2))
    both = alike(closures)
    few = choose(both, 10, 4, 4 * choose(both, 10, 4, None, {"x/a"}).trial_s)
    assert few.timed == ("y/b", "z/c")


def test_nothing_is_timed_where_a_trial_takes_too_long():
    both = alike((closure("a", at_s=100.0), closure("b", at_s=100.0)))
    none = choose(both, 10, 4, 60.0)
    assert none.timed == ()
    [why] = set(none.left_out.values())
    assert "0 of 2 closures" in why
    assert "4 trials of 102 s at least" in why
    assert "--budget 14 times them all" in why


def test_a_closure_that_fails_is_not_timed():
    bad = SideSurvey((closure("a"), closure("b", status="error", why="no")), ScriptEnd())
    both = Survey({"base": SideSurvey((closure("a"), closure("b")), ScriptEnd()), "head": bad})
    assert choose(both, 10, 4, None).timed == ("script/a",)
    assert "script/b" in both.paired


def test_a_scripts_own_seconds_end_with_the_last_closure_that_is_timed():
    closures = (closure("a", at_s=5.0, took_s=2.0), closure("b", at_s=9.0, took_s=1.0), closure("c", at_s=60.0))
    both = alike(closures)
    assert own_s(both, ["script/a"]) == 5.0
    assert own_s(both, ["script/a", "script/b"]) == 9.0 - 2.0
    assert own_s(both, ["script/c"]) == 60.0 - 3.0


def test_what_a_reader_must_know():
    early = ScriptEnd(1, "raised", "RuntimeError: no", elsewhere={"lib": "/site/lib"}, programs=("python x.py",))
    said = warnings(survey("a", "a", head=early))
    assert len(said) == 3
    assert "ended early, after 1 closures: RuntimeError: no" in said[0]
    assert "lib was imported from /site/lib" in said[1]
    assert warnings(survey("a", "a", head=ScriptEnd(0, "exit"))) == []


def test_a_loop_that_is_not_taken_over_leaves_something_that_was_not_looked_at():
    """On both sides alike, too: the verdict is no SAME for the whole script."""
    clock = ScriptEnd(untaken=("bench.py:7: it yields", "bench.py:9: it awaits"))
    why = "its own clock is not compared at bench.py:7: it yields"
    assert survey("a", "a", base=clock, head=clock).cut_short() == {"base": why, "head": why}
    assert survey("a", "a", head=clock).cut_short() == {"head": why}


def test_one_library_for_both_sides_is_refused_unless_a_checkout_has_it():
    end = ScriptEnd(elsewhere={"lib": "/site/lib"})
    with pytest.raises(CannotRun, match="both sides imported lib from /site/lib"):
        refuse(survey("a", "a", base=end, head=end), "s.py")
    refuse(survey("a", "a", base=end, head=ScriptEnd(elsewhere={"lib": "/other"})), "s.py")
    with pytest.raises(NothingTimed, match="no closure in common"):
        refuse(survey("a", "b"), "s.py")


@pytest.mark.parametrize(
    ("name", "text", "by_pytest"),
    [
        ("test_a.py", "import x\n\ndef test_a():\n    pass\n", True),
        ("test_a.py", "def test_a():\n    pass\n\nfor n in (1, 2):\n    test_a()\n", False),
        ("test_a.py", "def test_a():\n    pass\n\nif __name__ == '__main__':\n    test_a()\n", False),
        ("bench_a.py", "def test_a():\n    pass\n", False),
        ("test_a.py", "def test_a(:\n", False),
    ],
)
def test_pytest_runs_what_nothing_else_starts(tmp_path, name, text, by_pytest):
    (tmp_path / name).write_text(text)
    assert ScriptRun(name, tmp_path / name).by_pytest is by_pytest


def test_a_script_that_times_nothing_is_told_where_it_reads_a_clock():
    for untaken, printed in (((), "needs 2 GPUs"), (("bench.py:7: it yields",), "")):
        end = ScriptEnd(untaken=untaken, printed=printed)
        with pytest.raises(NothingTimed) as told:
            refuse(survey("", "a", base=end), "bench.py")
        assert ("reads a clock at bench.py:7: it yields" in str(told.value)) is bool(untaken)
        assert ("say how many ranks: --ranks 2" in str(told.value)) is bool(printed)


@pytest.mark.parametrize(
    ("text", "fresh"), [("import os\nos.putenv('A', '1')", True), ("os.environ['A'] = '1'", True), ("import os", False)]
)
def test_a_script_that_sets_variables_needs_a_python_that_has_not_imported_torch(tmp_path, text, fresh):
    (tmp_path / "a.py").write_text(text)
    assert ScriptRun("a.py", tmp_path / "a.py").needs_fresh_python is fresh


def test_what_fails_on_one_side_does_not_change_what_others_of_its_case_compute():
    good = closure("torch/x=1", outputs=("float32[4]",))
    sides = {
        "base": (good, closure("liger/x=1", status="error", why="RuntimeError: Triton Error [CUDA]: out of memory")),
        "head": (good, closure("liger/x=1", outputs=("float32[4]",))),
    }
    found = Survey({role: SideSurvey(own, ScriptEnd()) for role, own in sides.items()})
    assert found.definition("base", "x=1") == found.definition("head", "x=1")
    assert [side.short_of_memory for side in found.sides.values()] == [True, False]


@pytest.mark.parametrize("short", [("head",), ("base",), ("base", "head"), ()])
def test_a_side_that_finds_no_memory_beside_the_other_proves_nothing(short):
    """Both stand on the GPU at once; where both run out, what each said stays."""
    error = failed_entry(Status.ERROR, "first calls: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    arms = {role: error if role in short else failed_entry(Status.UNTIMED, "not timed") for role in ("base", "head")}
    cases = {}
    _add(cases, "liger/bench:x=1", arms)
    [(key, case)] = cases.items()
    told = {role: case["arms"][f"{role}/liger"]["status"] for role in arms}
    assert told == dict.fromkeys(arms, "error" if short == ("base", "head") else "untimed")
    if len(short) == 1:
        assert f"{short[0]} found no memory on the GPU beside the other side" in case["arms"]["head/liger"]["why"]


# In trials, calls of a script's functions that time nothing that is wanted are not made.


SCRIPT = """
import torch, mylib
from helper import run_all

def random_input(provider, size):
    print("built", provider, size)
    return torch.rand(size)

run_all(random_input, {"mine": mylib.double, "other": torch.relu, "third": torch.abs}, (8, 16))
"""

HELPER = '''
from triton.testing import do_bench

def build(made, calls):
    def bench(provider, size):
        """One row."""
        x = made(provider, size)
        return {"ms": do_bench(lambda: calls[provider](x)), "size": size}
    return bench

def run_all(made, calls, sizes):
    bench = build(made, calls)
    for size in sizes:
        for provider in ("other", "third", "mine"):
            row = bench(provider, size)
            print("row", provider, row["size"], row["ms"] == row["ms"])
'''


@pytest.fixture
def changed(adopt):
    """A run in which head's own function is written in another way."""

    def run(script, *options, helper=HELPER):
        files = {"bench/helper.py": helper}
        slower = "def double(x):\n    return 2 * x\n"
        return adopt(script, *options, base=files, head={**files, "mylib/__init__.py": slower}, every=False)

    return run


@pytest.mark.slow  # times two sides
def test_what_is_not_wanted_is_built_once_of_each_function(changed):
    found = changed(SCRIPT, "--trials", "2")
    assert found.code == 0, found.said
    ok = {key for key, arm in found.arms().items() if arm["status"] == "ok"}
    assert {key.partition("/")[2].partition("/")[0] for key in ok} == {"mine"}
    assert sorted(key.rpartition(",size=")[2] for key in ok) == ["16", "16", "8", "8"]
    assert not any("every call" in one for one in found.lines[0]["warnings"])
    lines = found.printed().splitlines()
    assert [one for one in lines if "built" in one] == ["built other 8", "built mine 8", "built mine 16"]
    rows = [one for one in lines if "row" in one]
    assert rows == [
        *("row other 8 True", "row third 8 False", "row mine 8 True"),
        *("row other 8 False", "row third 8 False", "row mine 16 True"),
    ]


@pytest.mark.slow  # times two sides, the first trial twice
@pytest.mark.parametrize("how", mostly_nightly(["raises", "stale"], "raises"))
def test_a_script_that_needs_such_a_call_gets_it(changed, how):
    needs = HELPER.replace("\nfrom triton", "\nimport torch\nheld = [torch.zeros(8)]\nfrom triton")
    if how == "raises":
        needs = needs.replace("        x = made(", "        held.append(provider)\n        x = made(")
        needs += "            assert held[-1] == provider\n"
    else:
        needs = needs.replace("x = made(provider, size)", "x = made(provider, 8)")
        needs = needs.replace(
            "        x =", "        if provider == 'third': held[0] = torch.ones(8) * size\n        x ="
        )
        needs = needs.replace("calls[provider](x)", "calls[provider](held[0] + x)")
    found = changed(SCRIPT, helper=needs)
    assert found.code == 0, found.said
    assert sum(arm["status"] == "ok" for arm in found.arms().values()) == 4
    assert any("trials make every call of the script" in one for one in found.lines[0]["warnings"])
    assert found.printed().count("built") == 6


def seen_at(key, at_s, *calls):
    return SeenClosure("a", key, at_s=at_s, took_s=1.0, calls=calls)


SIDE = SideSurvey(
    (
        seen_at("1", 10.0, "1:f.py:all", "2:f.py:one"),
        seen_at("2", 21.0, "1:f.py:all", "3:f.py:one"),
        seen_at("3", 32.0, "1:f.py:all", "4:f.py:one"),
        seen_at("4", 43.0, "1:f.py:all", "5:f.py:one"),
    ),
    ScriptEnd(),
)
SURVEY = Survey({"base": SIDE, "head": SIDE})


def test_calls_without_a_wanted_closure_are_left_out():
    assert SURVEY.unwanted_calls("base", ["a/1", "a/4"]) == [("f.py:one", 1, ["a/2"]), ("f.py:one", 2, ["a/3"])]
    assert SURVEY.unwanted_calls("base", []) == [
        ("f.py:all", 0, ["a/1", "a/2", "a/3", "a/4"]),
        *(("f.py:one", index, [f"a/{index + 1}"]) for index in range(4)),
    ]


@pytest.mark.parametrize(("timed", "seconds"), [("1", 10.0), ("4", 20.0), ("34", 30.0), ("1234", 40.0)])
def test_what_a_trial_costs_is_told_without_them(timed, seconds):
    """Ten seconds before each seen_at; one call is made of those that are not wanted."""
    assert own_s(SURVEY, [f"a/{one}" for one in timed]) == seconds


def test_only_plain_data_is_given_again():
    assert str(blank({"ms": [1.5, (2, "x", None)], 2.0: True})) == "{'ms': [nan, (2, 'x', None)], 2.0: True}"
    with pytest.raises(NotPlain):
        blank([object()])
