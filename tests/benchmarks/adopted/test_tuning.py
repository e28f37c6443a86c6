"""Kernels that choose their configuration by times: taken in closures that are timed, and once a side."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from benchmarks.worker.scripts.timers import Tuning, fastest_or_alike

pytestmark = pytest.mark.slow  # imports Triton


class Kernel:
    """Stands for a kernel of Triton.  ms: by BLOCK.  src: its text.  launched: what ran."""

    def __init__(self, ms, src):
        self.ms, self.src, self.launched = ms, src, list[int]()

    def run(self, *args, BLOCK, **kwargs):
        from triton.runtime.errors import OutOfResources

        if self.ms[BLOCK] < 0:
            raise OutOfResources(2, 1, "shared memory")
        self.launched.append(BLOCK)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """make(role, {BLOCK: ms}, measures) -> a tuner in a process of its own, so to say, and its kernel.

    measures: a closure is being timed.
    """
    from triton.runtime import autotuner

    prune, bench = autotuner.Autotuner.prune_configs, autotuner.Autotuner._bench

    def made(role, ms, measures=True, src="def named(): ..."):
        autotuner.Autotuner.prune_configs, autotuner.Autotuner._bench = prune, bench
        tuning = Tuning(str(tmp_path / "tuned"), role, False)
        tuning.of_triton(autotuner)
        if measures:
            entered.enter_context(tuning.measuring())
        kernel = Kernel(ms, src)

        def do_bench(call, quantiles):
            call()
            return [kernel.ms[kernel.launched[-1]]] * 3

        def named(): ...

        kernel.fn = named  # type: ignore[attr-defined]
        configs = [autotuner.Config({"BLOCK": one}) for one in ms]
        tuner = autotuner.Autotuner(kernel, ["x", "n"], configs, ["n"], ["x"], None, do_bench=do_bench)
        return tuning, tuner, kernel

    with contextlib.ExitStack() as entered:
        yield made
    autotuner.Autotuner.prune_configs, autotuner.Autotuner._bench = prune, bench


class Buffer:
    """A tensor that counts how often it is cleared."""

    dtype, cleared = "fp32", 0

    def zero_(self):
        self.cleared += 1


def test_outside_of_what_is_timed_the_first_configuration_that_can_be_launched_serves(make):
    tuning, tuner, kernel = make("base", {16: -1, 32: 3.0, 64: 1.0, 128: 2.0}, measures=False)
    x = Buffer()
    tuner.run(x, 5)
    assert kernel.launched == [32, 32]  # tried, then run
    assert tuning.skipped == 4
    assert x.cleared >= 2
    tuner.run(x, 5)
    assert kernel.launched == [32, 32, 32]
    tuner.run(x, 6)
    assert tuning.skipped == 8


def test_what_was_chosen_without_times_is_chosen_again_where_a_closure_is_timed(make):
    tuning, tuner, kernel = make("base", {16: 3.0, 32: 1.0}, measures=False)
    tuner.run(Buffer(), 5)
    with tuning.measuring():
        tuner.run(Buffer(), 5)
    assert kernel.launched == [16, 16, 16, 32, 32]
    tuner.run(Buffer(), 5)
    tuner.run(Buffer(), 6)
    assert kernel.launched[5:] == [32, 16, 16]


@pytest.mark.parametrize(("surveys", "left"), [(True, ["first"]), (False, ["second"])])
def test_a_survey_takes_the_first_configuration_of_inductors_kernels(surveys, left):
    class CachingAutotuner:
        def __init__(self):
            self.launchers = ["first", "second"]

        def autotune_to_one_config(self, *_, **__):
            self.launchers = self.launchers[1:]

        def coordinate_descent_tuning(self, launcher, *_, **__):
            return f"better than {launcher}"

    Tuning("", "base", surveys).of_inductor(SimpleNamespace(CachingAutotuner=CachingAutotuner))
    tuner = CachingAutotuner()
    tuner.autotune_to_one_config(1, stream=0)
    assert tuner.launchers == left
    assert tuner.coordinate_descent_tuning("one", 1, stream=0) == ("one" if surveys else "better than one")


def test_a_side_measures_once_in_a_session(make):
    _, tuner, kernel = make("base", {16: 3.0, 32: 1.0, 64: 2.0})
    tuner.run(Buffer(), 5)
    assert kernel.launched == [16, 32, 64, 32]
    _, again, kernel = make("base", {16: 1.0, 32: 3.0, 64: 2.0})  # by chance, in the next trial
    again.run(Buffer(), 5)
    assert set(kernel.launched) == {32}
    again.run(Buffer(), 6)
    assert kernel.launched[-4:] == [16, 32, 64, 16]


@pytest.mark.parametrize(("there", "taken"), [(1.04, 32), (1.2, 16)])
def test_both_sides_choose_alike_where_times_do_not_tell(make, there, taken):
    make("base", {16: 3.0, 32: 1.0, 64: 2.0})[1].run(Buffer(), 5)
    _, tuner, kernel = make("head", {16: 1.0, 32: there, 64: 2.0})
    tuner.run(Buffer(), 5)
    assert kernel.launched[-1] == taken


def test_sides_with_other_configurations_choose_for_themselves(make):
    make("base", {16: 3.0, 32: 1.0})[1].run(Buffer(), 5)
    _, tuner, kernel = make("head", {16: 1.0, 32: 1.01, 64: 2.0})
    tuner.run(Buffer(), 5)
    assert kernel.launched[-1] == 16


def test_a_changed_kernel_is_run_in_its_own_best_configuration(make):
    make("base", {16: 3.0, 32: 1.0})[1].run(Buffer(), 5)
    _, tuner, kernel = make("head", {16: 1.0, 32: 1.01}, src="def named(): other")
    tuner.run(Buffer(), 5)
    assert kernel.launched[-1] == 16


def test_the_fastest_is_chosen_where_the_other_side_has_none():
    assert fastest_or_alike({"a": 2.0, "b": 1.0}, "") == fastest_or_alike({"a": 2.0, "b": 1.0}, "c") == "b"
    assert fastest_or_alike({"a": float("inf"), "b": float("inf")}, "b") == "b"


def test_a_kernel_that_names_no_timer_is_measured_shortly(make, monkeypatch):
    _, tuner, kernel = make("base", {16: 3.0, 32: 1.0})
    asked = []

    def benchmarker(call, quantiles, **how):
        asked.append(how)
        call()
        return [kernel.ms[kernel.launched[-1]]]

    tuner._do_bench = None
    tuner.do_bench = benchmarker  # as Triton makes it of the driver
    tuner.run(Buffer(), 5)
    assert asked == [{"warmup": 5, "rep": 25}] * 2
    assert tuner.do_bench is benchmarker
    assert kernel.launched[-1] == 32
