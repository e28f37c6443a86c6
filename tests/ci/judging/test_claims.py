"""A trial's claims against its run: every lie that can be seen from outside is refused by name."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import numpy as np
import pytest

from benchmarks.reach import Reach
from ci.judging import policy
from ci.judging.recorded import Expected, contradiction, decided, sift
from ci.judging.types import Verdict
from ci.trials import file as hostile
from tests.ci import made_trials as made
from tests.ci.judging.test_live import Player, play

RANDOM = np.random.default_rng(7)


SAME = Reach(same=("gemm",))


def expected(**changes):
    given = {"product": "H200 SXM", "counts": (2,), **changes}
    return Expected(made.HEAD, made.BASE, given.pop("product"), **given)


def sealed(line):
    """The line with the id of its content, as its writer gives it."""
    body = {key: value for key, value in line.items() if key != "id"}
    return {**body, "id": hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]}


def times():
    return [float(one) for one in RANDOM.normal(1e-3, 1e-5, 8)]


def honest(number=0, **changes):
    arms = {backend: [made.ok(times()) for _ in made.SIDES] for backend in ("triton", "blas")}
    return made.paired({"m16": arms}, number, **changes)


def parsed(line):
    return made.parsed(sealed(line))


def test_an_honest_trial_passes():
    assert contradiction(parsed(honest()), expected()) == ""


def without_base(line):
    del line["trees"]["base"]
    line["cases"]["m16"]["arms"] = {k: v for k, v in line["cases"]["m16"]["arms"].items() if k.startswith("head")}


LIES = [
    ("trees head commit", "c" * 40, "says its head is cccc"),
    ("trees base commit", "c" * 40, "says its base is cccc"),
    ("trees head commit", None, "says its head is None"),
    ("trees base commit", made.HEAD, "says its base"),
    ("trees head recorded_as", made.HEAD, "was renamed"),
    ("trees head dirty", True, "uncommitted changes"),
    ("machine market_name", "MI300X", "ran on MI300X; the pool has H200 SXM"),
    ("machine market_name", None, "the pool has H200 SXM"),
    ("machine kind", "cpu", "the pool has H200 SXM"),
    ("machine count", 8, "had 8 GPUs; the leg was given 2"),
]
"""(path, what a line says there, what is said of it)."""


@pytest.mark.parametrize(("path", "value", "said"), LIES)
def test_a_lie_is_refused_by_name(path, value, said):
    assert said in contradiction(parsed(made.changed(honest(), path, value)), expected())


def test_an_edited_line_is_refused():
    line = sealed(honest())
    line["cases"]["m16"]["arms"]["head/triton"]["seconds"][0] *= 0.5
    assert "the line was edited" in contradiction(made.parsed(line), expected())


def test_head_alone_counts_where_git_says_that_the_kernels_are_the_same():
    line = honest()
    without_base(line)
    assert contradiction(parsed(line), expected(reach=SAME)) == ""
    assert "head alone was measured" in contradiction(parsed(line), expected())


def test_a_cpu_pool_takes_cpu_trials_only():
    line = honest(machine={**made.MACHINE, "kind": "cpu", "market_name": None, "arch": "x86_64"})
    assert contradiction(parsed(line), expected(product=None, counts=())) == ""
    assert "the pool has no GPU" in contradiction(parsed(honest()), expected(product=None, counts=()))


# ---- trials beside each other ----------------------------------------------------------------------------------------


def test_another_machine_in_one_leg_is_refused():
    other = honest(1, machine={**made.MACHINE, "name": "h200x2-ffffffff"})
    _, refused = sift([parsed(honest()), parsed(other)], expected())
    assert "others of its leg on h200x2-1a2b3c4d" in refused[0]


# The judgement on a host's trials: what is refused, left out or missing makes no pass, and hides no regression.


RULES = policy.load()
RUN = Expected(made.HEAD, made.BASE, "H200 SXM", (2,))


def measured(folder, slower=0.0):
    """The lines of a leg, as an honest host writes them."""
    out = folder / "live.jsonl"
    play(Player(slower), out)
    return [sealed(json.loads(line)) for line in out.read_text().splitlines()]


def handed_over(folder, *lines):
    return hostile.read_hostile(made.write(folder / "trials.jsonl", *lines))


def of_another_head(line):
    return sealed({**line, "trees": {**line["trees"], "head": made.tree("c" * 40)}})


@pytest.mark.parametrize(
    ("slower", "change", "verdict", "why"),
    [
        (0.0, lambda lines: lines, Verdict.SAME, ""),
        (0.03, lambda lines: lines, Verdict.SLOWER, ""),
        (
            0.0,
            lambda lines: [*lines[:-1], of_another_head(lines[-1])],
            Verdict.CANNOT_TELL,
            "refused: it says its head",
        ),
        (0.0, lambda lines: [*lines, {"format": "something else"}], Verdict.CANNOT_TELL, "trials.jsonl:"),
    ],
)
def test_honest_trials_are_judged_and_whatever_does_not_fit_or_is_left_out_forbids_a_pass(
    tmp_path, slower, change, verdict, why
):
    outcome = decided([handed_over(tmp_path, *change(measured(tmp_path, slower)))], RUN, RULES)
    assert outcome.judgement.verdict is verdict
    assert why in outcome.judgement.why
    assert bool(outcome.remarks) == bool(why)


def test_a_case_that_base_declares_and_nobody_measured_forbids_a_pass(tmp_path):
    lines = measured(tmp_path)
    for line in lines:
        line["trees"]["base"]["declaration"] = made.declaration(cases=("m16", "m64", "slow"))
        line["trees"]["head"]["declaration"] = made.declaration(cases=("m16", "m64", "slow"))
    outcome = decided([handed_over(tmp_path, *map(sealed, lines))], RUN, RULES)
    assert outcome.judgement.verdict is Verdict.CANNOT_TELL
    assert "gemm/slow was not measured" in outcome.judgement.warnings


def test_what_the_commits_differ_in_and_nobody_measured_forbids_a_pass(tmp_path):
    reach = Reach(("sort",), {"gemm": ("perf/gemm.py",), "scan": ("perf/scan.py",)})
    run = dataclasses.replace(RUN, reach=reach, programs=("bench",))
    outcome = decided([handed_over(tmp_path, *measured(tmp_path))], run, RULES)
    assert outcome.judgement.verdict is Verdict.CANNOT_TELL
    assert outcome.remarks == ("scan was not measured", "bench was not measured")
    assert outcome.judgement.unreached == ("sort",)


def test_without_trials_it_is_same_only_where_git_says_that_nothing_is_reached():
    assert decided([], dataclasses.replace(RUN, reach=SAME), RULES).judgement.verdict is Verdict.SAME
    for changes in ({}, {"reach": Reach()}, {"reach": SAME, "programs": ("bench",)}):
        assert decided([], dataclasses.replace(RUN, **changes), RULES).judgement.verdict is Verdict.CANNOT_TELL


def test_a_refused_trial_hides_no_regression(tmp_path):
    lines = measured(tmp_path, 0.03)
    foreign = sealed({**lines[0], "trial": 99, "trees": {**lines[0]["trees"], "base": made.tree("c" * 40)}})
    outcome = decided([handed_over(tmp_path, *lines, foreign)], RUN, RULES)
    assert outcome.judgement.verdict is Verdict.SLOWER


@pytest.mark.parametrize("lines", [0, 1])
def test_nothing_that_fits_is_no_verdict(tmp_path, lines):
    other = Expected("d" * 40, made.BASE, "H200 SXM", (2,))
    outcome = decided([handed_over(tmp_path, *measured(tmp_path)[:lines])], other, RULES)
    assert outcome.judgement.verdict is Verdict.CANNOT_TELL
    assert "no trial fits the run" in outcome.judgement.why
    assert outcome.trials == ()


def test_head_alone_with_the_same_kernels_is_same(tmp_path):
    (line, *_) = measured(tmp_path)
    del line["trees"]["base"]
    for case in line["cases"].values():
        case["arms"] = {key: arm for key, arm in case["arms"].items() if key.startswith("head")}
    file = handed_over(tmp_path, sealed(line))
    alone = decided([file], dataclasses.replace(RUN, reach=SAME), RULES)
    assert alone.judgement.verdict is Verdict.SAME
    assert decided([file], RUN, RULES).judgement.verdict is Verdict.CANNOT_TELL
