"""In trials, calls of a script's functions that time nothing that is wanted are not made."""

from __future__ import annotations

import pytest

from benchmarks.adopted.survey import ScriptEnd, SeenClosure, SideSurvey, Survey, own_s
from benchmarks.worker.scripts.skipping import NotPlain, blank
from tests.benchmarks.adopted.conftest import Adopt, Adopted
from tests.kit import mostly_nightly

SCRIPT = """
import torch, mylib
from helper import run_all

def made(provider, size):
    print("built", provider, size)
    return torch.rand(size)

run_all(made, {"mine": mylib.double, "other": torch.relu, "third": torch.abs}, (8, 16))
"""

HELPER = '''
import dataclasses
from triton.testing import do_bench

@dataclasses.dataclass
class Row:
    ms: float
    size: int

def build(made, calls):
    def bench(provider, size):
        """One row."""
        x = made(provider, size)
        return Row(do_bench(lambda: calls[provider](x)), size)
    return bench

def run_all(made, calls, sizes):
    bench = build(made, calls)
    for size in sizes:
        for provider in ("other", "third", "mine"):
            row = bench(provider, size)
            print("row", provider, row.size, row.ms == row.ms)
'''

WRITES = "return x * by"


@pytest.fixture
def changed(adopt: Adopt) -> Adopt:
    """A run in which head's own function is written in another way."""

    def run(script: str, *options: str, helper: str = HELPER) -> Adopted:
        files = {"bench/helper.py": helper}
        slower = "def double(x):\n    return 2 * x\n"
        return adopt(script, *options, base=files, head={**files, "mylib/__init__.py": slower}, every=False)

    return run


@pytest.mark.slow  # times two sides
def test_what_is_not_wanted_is_built_once_of_each_function(changed: Adopt) -> None:
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
def test_a_script_that_needs_such_a_call_gets_it(changed: Adopt, how: str) -> None:
    needs = HELPER.replace("import dataclasses", "import dataclasses\nimport torch\nheld = [torch.zeros(8)]")
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


def closure(key: str, at_s: float, *calls: str) -> SeenClosure:
    return SeenClosure("a", key, at_s=at_s, took_s=1.0, calls=calls)


SIDE = SideSurvey(
    (
        closure("1", 10.0, "1:f.py:all", "2:f.py:one"),
        closure("2", 21.0, "1:f.py:all", "3:f.py:one"),
        closure("3", 32.0, "1:f.py:all", "4:f.py:one"),
        closure("4", 43.0, "1:f.py:all", "5:f.py:one"),
    ),
    ScriptEnd(),
)
SURVEY = Survey("d", {"base": SIDE, "head": SIDE})


def test_calls_without_a_wanted_closure_are_left_out() -> None:
    assert SURVEY.unwanted_calls("base", ["a/1", "a/4"]) == [("f.py:one", 1, ["a/2"]), ("f.py:one", 2, ["a/3"])]
    assert SURVEY.unwanted_calls("base", []) == [
        ("f.py:all", 0, ["a/1", "a/2", "a/3", "a/4"]),
        *(("f.py:one", index, [f"a/{index + 1}"]) for index in range(4)),
    ]


@pytest.mark.parametrize(("timed", "seconds"), [("1", 10.0), ("4", 20.0), ("34", 30.0), ("1234", 40.0)])
def test_what_a_trial_costs_is_told_without_them(timed: str, seconds: float) -> None:
    """Ten seconds before each closure; one call is made of those that are not wanted."""
    assert own_s(SURVEY, [f"a/{one}" for one in timed]) == seconds


def test_only_plain_data_is_given_again() -> None:
    assert str(blank({"ms": [1.5, (2, "x", None)], 2.0: True})) == "{'ms': [nan, (2, 'x', None)], 2.0: True}"
    with pytest.raises(NotPlain):
        blank([object()])
