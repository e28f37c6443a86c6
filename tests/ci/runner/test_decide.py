"""Whatever happens to GitHub, to Slurm and to the service, each job runs, nothing runs twice, and nothing is left."""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ci.runner.decide import lost_its_node, trouble
from ci.runner.state import Sight, Slot, offer_of, refusal
from ci.slurm import ENDED, QueueRow
from tests.ci.runner.world import ALLOWED, SERVING, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def run_up(world: World) -> str:
    """From a queued job to a runner at work."""
    world.round()
    (token,) = [one for one in world.living() if world.slurm[one].waiting]
    world.begin(token)
    world.round()
    world.read(token)
    return token


def settled(world: World, rounds: int = 150) -> None:
    """Everything is back and works: let time pass until nothing changes any more."""
    world.hub_away = world.cluster_away = False
    world.kill_in = 0
    for _ in range(rounds):
        world.round()
        world.now += 20
        for token in list(world.living()):
            advance(world, token)
        for token in {job.runner for job in world.jobs.values() if job.status == "in_progress"} - set(world.living()):
            world.notice(token)
        if not (world.waiting() or world.service.ledger.slots or world.service.ledger.lost or world.runners):
            return


def advance(world: World, token: str) -> None:
    place = world.folder / "slots" / token
    if world.slurm[token].waiting:
        world.begin(token)
    elif (place / "config").exists():
        world.read(token)
    elif any(one.name == token and one.busy for one in world.runners.values()):
        world.finish(token)
    elif any(one.name == token and one.online for one in world.runners.values()):
        world.take(token)


def test_a_queued_job_gets_a_slurm_job_a_runner_and_nothing_is_left(world: World) -> None:
    job = world.queue()
    token = run_up(world)
    assert world.jobs[job.id].runner == token
    world.round()
    world.finish(token)
    world.round()
    assert (world.runners, world.living(), world.service.ledger.slots) == ({}, [], ())
    assert not (world.folder / "slots" / token).exists()
    assert world.submitted == [token]


def test_one_slurm_job_for_each_queued_job_within_the_bound_of_the_partition(world: World) -> None:
    for labels in ("mi300x-1", "mi300x-1", "mi300x-8", "mi300x-8", "mi355x-8"):
        world.queue(labels=frozenset([labels]))
    world.round()
    world.round()
    assert Counter(world.offers.values()) == {"mi300x-1": 2, "mi300x-8": 1, "mi355x-8": 1}


def test_jobs_that_are_not_ours_start_nothing_and_are_refused_once(world: World) -> None:
    world.queue(event="pull_request")
    world.queue(head="stranger/r")
    world.queue(path=".github/workflows/other.yml")
    world.queue(ref="feature")
    world.queue(labels=frozenset(["ubuntu-24.04"]))
    world.round()
    world.round()
    assert world.submitted == []
    assert [line.partition(":")[0].split()[0] for line in world.log] == ["refused"] * 4


@pytest.mark.parametrize("how", ["node", "forgotten"])
def test_the_job_of_a_lost_node_runs_again_and_not_for_ever(world: World, how: str) -> None:
    world.queue()
    for _ in range(SERVING.reruns + 2):
        if not world.waiting():
            break
        token = run_up(world)
        world.round()
        world.end(token, "NODE_FAIL") if how == "node" else world.forget(token)
        for _ in range(5):
            world.round()
            world.now += 20
        world.notice(token)
        for _ in range(5):
            world.round()
            world.now += 20
    assert set(world.reruns.values()) == {SERVING.reruns}
    assert any("run again 2 times already" in line for line in world.log)
    assert world.service.ledger.lost == ()


def test_a_job_that_failed_or_was_cancelled_is_not_run_again(world: World) -> None:
    world.queue()
    token = run_up(world)
    world.finish(token, "failure")
    world.queue()
    world.round()
    token = run_up(world)
    world.end(token, "CANCELLED")
    world.notice(token)
    settled(world, 20)
    assert world.reruns == {}


def test_a_runner_that_never_comes_online_is_deleted_and_the_next_one_waits(world: World) -> None:
    world.queue()
    world.round()
    (token,) = world.living()
    world.begin(token)
    world.round()
    assert len(world.runners) == 1
    world.now += SERVING.online_s
    world.round()
    world.round()
    assert world.runners == {}
    assert world.living() == []
    world.round()
    assert world.living() == [], "the pause of the offer"
    world.now += SERVING.pause_s
    world.round()
    assert len(world.living()) == 1


def test_a_queued_slurm_job_that_nobody_needs_is_cancelled_and_an_idle_runner_leaves(world: World) -> None:
    job = world.queue()
    other = world.queue()
    world.round()
    first, second = world.living()
    world.begin(first)
    world.round()
    del world.jobs[job.id], world.jobs[other.id]
    world.read(first)
    world.round()
    world.round()
    assert world.living() == [first]
    world.now += SERVING.idle_s
    for _ in range(3):
        world.round()
    assert (world.living(), world.runners) == ([], {})


def test_a_slurm_job_that_will_never_start_is_taken_back_and_said(world: World) -> None:
    world.queue()
    world.round()
    (token,) = world.living()
    world.slurm[token] = dataclasses.replace(world.slurm[token], reason="PartitionTimeLimit")
    for _ in range(3):
        world.round()
    assert world.living() == []
    assert sum("will not start its job: PENDING, PartitionTimeLimit" in line for line in world.log) == 1
    assert len(world.submitted) == 1, "the pause of the offer"


def test_an_old_job_with_the_same_number_is_not_answered(world: World) -> None:
    world.queue()
    world.round()
    (token,) = world.living()
    world.begin(token)
    (world.folder / "slots" / token / "asked").write_text("4711")
    world.round()
    assert world.runners == {}


def test_a_lost_state_file_costs_nothing(world: World) -> None:
    world.queue()
    token = run_up(world)
    (world.folder / "state.json").unlink()
    world.start()
    world.round()
    assert world.submitted == [token]
    world.finish(token)
    settled(world, 10)
    assert (world.service.ledger.slots, world.runners) == ((), {})


def test_labels_are_compared_without_case_and_the_smallest_offer_wins() -> None:
    assert offer_of(ALLOWED, SERVING.offers) == SERVING.offers[0]
    both = frozenset(["Linux", "MI300X"])
    assert offer_of(dataclasses.replace(ALLOWED, labels=both), SERVING.offers) == SERVING.offers[0]
    assert offer_of(dataclasses.replace(ALLOWED, labels=frozenset()), SERVING.offers) is None
    assert refusal(ALLOWED, SERVING) == ""


@pytest.mark.parametrize("state", sorted(ENDED))
def test_only_a_lost_node_makes_a_job_run_again(state: str) -> None:
    row = QueueRow("7", "7", "rl-a", state, "", "gpu", "n1", "rl-a")
    lost = lost_its_node(Slot("rl-a", "mi300x-1", 0.0, run=9), Sight(cluster={"rl-a": row}))
    assert lost is (state in {"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED"})
    assert trouble(row) == ("" if state == "COMPLETED" else state)


class Worlds(RuleBasedStateMachine):
    """Anything in any order, and at the end everything is as it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.world = World(Path(self.place.name))

    @rule(
        labels=st.sampled_from(["mi300x-1", "mi300x-8", "mi355x-8"]),
        event=st.sampled_from(["schedule"] * 3 + ["pull_request"]),
    )
    def queue(self, labels: str, event: str) -> None:
        self.world.queue(labels=frozenset([labels]), event=event)

    @rule(index=st.integers(0, 9), data=st.sampled_from(["advance", "lost", "forgotten", "stopped", "crashed"]))
    def happens(self, index: int, data: str) -> None:
        living = self.world.living()
        if not living:
            return
        token = living[index % len(living)]
        if data == "advance":
            advance(self.world, token)
        elif data == "lost":
            self.world.end(token, "NODE_FAIL")
        elif data == "forgotten":
            self.world.forget(token)
        elif data == "stopped":
            self.world.end(token, "CANCELLED")
        else:
            self.world.leave(token, 1)

    @rule()
    def advance_all(self) -> None:
        for token in self.world.living():
            advance(self.world, token)

    @rule()
    def github_cancels_what_waits(self) -> None:
        self.world.jobs = {id: job for id, job in self.world.jobs.items() if job.status != "queued"}

    @rule(seconds=st.sampled_from([1, 30, 200, 4000]))
    def time_passes(self, seconds: int) -> None:
        self.world.now += seconds

    @rule(hub=st.booleans(), cluster=st.booleans())
    def away(self, hub: bool, cluster: bool) -> None:
        self.world.hub_away, self.world.cluster_away = hub, cluster

    @rule(calls=st.integers(0, 6), after=st.booleans())
    def round(self, calls: int, after: bool) -> None:
        self.world.kill_in, self.world.kill_after = calls, after
        self.world.round()

    @rule()
    def quiet_round(self) -> None:
        self.world.round()

    @invariant()
    def bounds_hold(self) -> None:
        partitions = Counter(self.world.offers[token].partition("-")[0] for token in self.world.living())
        assert all(count <= SERVING.jobs for count in partitions.values())

    @invariant()
    def no_token_twice(self) -> None:
        assert len(set(self.world.submitted)) == len(self.world.submitted)

    @invariant()
    def not_too_often(self) -> None:
        assert all(count <= SERVING.reruns + 1 for count in self.world.reruns.values())

    def teardown(self) -> None:
        settled(self.world)
        assert self.world.waiting() == []
        assert self.world.living() == []
        assert self.world.runners == {}
        assert self.world.service.ledger.slots == ()
        assert self.world.service.ledger.lost == ()
        self.place.cleanup()


TestWorlds = Worlds.TestCase
TestWorlds.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
