"""Scripts of several ranks: each side's ranks are started, meet, and are timed and compared as one."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks import lifetime
from benchmarks.adopted import session
from benchmarks.adopted.session import ScriptSession
from benchmarks.adopted.sides import ScriptSide, disagreement, joint_end, joint_facts, joint_starts
from benchmarks.adopted.survey import sets_variables
from benchmarks.worker.scripts.ranks import Ranks, SeveralProcesses, SharedManager, SharedPool
from tests.kit import mostly_nightly

LIBRARY = """
import time
import torch, torch.distributed as dist

def summed(x):
    y = x.clone()
    dist.all_reduce(y)
    return y
"""

RANKS = """
import os
import torch, torch.distributed as dist
import mylib
from triton.testing import do_bench

def main(rank):
    x = torch.arange(64.0, device=f"cuda:{rank}") + rank
    print("rank", rank, "of", dist.get_world_size(), "ms", do_bench(lambda summed=mylib.summed: summed(x)))
"""

BY_TORCHRUN = (
    RANKS
    + """
dist.init_process_group("nccl")
main(int(os.environ["LOCAL_RANK"]))
"""
)

BY_SPAWN = (
    RANKS
    + """
def start(rank, world):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29500"
    torch.accelerator.set_device_index(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    assert torch.cuda.current_device() == rank, "of the CPU, too"
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1).cuda(rank), device_ids=[rank])
    with torch.cuda.nvtx.range("a step on a mesh of ranks"):
        model(torch.ones(1, 2, device=dist.device_mesh.init_device_mesh("cuda", (2,)).device_type)).sum().backward()
    main(rank)

"""
)


def slow_on(rank):
    """A commit in which one rank takes 20 ms more."""
    return LIBRARY.replace("    dist.all", f"    time.sleep(0.02 * (dist.get_rank() == {rank}))\n    dist.all")


CPU = ("--device", "cpu", "--ranks", "2", "--deadline", "30")


@pytest.mark.slow
def test_the_slowest_rank_counts_and_every_rank_is_compared(adopt):
    found = adopt(BY_TORCHRUN, *CPU, base={"mylib/__init__.py": LIBRARY}, head={"mylib/__init__.py": slow_on(1)})
    assert found.code == 0, found.said
    base, head = found.arms().values()
    assert min(head["seconds"]) > 0.02
    assert len(head["rank_s"]) == 2
    assert sorted(base["seconds"])[4] < 0.02
    assert "rank 0 of 2 ms" in found.printed()
    assert {"script", "first calls", "rounds"} <= found.lines[0]["spent_s"].keys()


@pytest.mark.slow
def test_on_gpus_each_side_is_set_up_first_once_in_a_trial(adopt, monkeypatch):
    roles = []

    def started(checkout, *more):
        roles.append(checkout.role)
        return ScriptSide(checkout, *more)

    monkeypatch.setattr(session, "ScriptSide", started)
    monkeypatch.setattr(ScriptSession, "_has_gpu", property(lambda self: bool(self.machine)))
    monkeypatch.setattr(ScriptSession, "_refuse_more_ranks_than_gpus", lambda self: None)
    found = adopt(BY_TORCHRUN, *CPU, base={"mylib/__init__.py": LIBRARY}, head={"mylib/__init__.py": LIBRARY})
    assert found.code == 0, found.said
    assert roles == ["base", "head"] * 2 + ["head", "base"] + ["base", "head"]  # survey, both starts, the next ahead
    for arm in found.arms().values():
        assert (len(arm["seconds"]), len(arm["rank_s"])) == (8, 2)


def started_below():
    """What children of this process have started: a browser or a cluster of other tests may be among them."""
    tree = lifetime.by_parent()
    return {below.process for child in tree.get(os.getpid(), ()) for below in tree.get(child.process, ())}


BY_BUFFERS = """return y

WHOLE = torch.ones(64)

def summed(x):  # each rank reads the other's buffer; a half is rounded, and lost
    held = [torch.from_file(f"{__file__}.{rank}", True, 64) for rank in range(2)]
    held[dist.get_rank()].copy_(x)
    dist.barrier()
    y = held[0] + held[1] * WHOLE.round_()
    dist.barrier()
"""

FAULTS = [
    ("y += dist.get_rank()", "rank 1: output 0 differs from base"),
    (  # its child has the pipe, too
        "import os\n    if dist.get_rank() and os.fork():\n        os.kill(os.getpid(), 9)\n"
        "    time.sleep(99 * dist.get_rank())",
        "rank 1 of 2 was killed by SIGKILL",
    ),
    (
        BY_BUFFERS.replace("dist.barrier()", "pass", 1).replace(".round_()", ""),
        "without a barrier it reads what the call before left",
    ),
    (BY_BUFFERS, ""),
    ("time.sleep(99 * dist.get_rank())", "rank 1 was in summed (__init__.py:8)"),
    ("dist.get_rank() or 1 / 0", "rank 0: ZeroDivisionError: division by zero"),
]


@pytest.mark.parametrize(("change", "sentence"), mostly_nightly(FAULTS, *FAULTS[:5]))
@pytest.mark.slow
def test_what_one_rank_does_is_told(adopt, change, sentence):
    head = LIBRARY.replace("    return y", f"    {change}\n    return y")
    files = {"base": {"mylib/__init__.py": LIBRARY}, "head": {"mylib/__init__.py": head}}
    others = started_below()
    found = adopt(BY_TORCHRUN, *CPU[:-1], "15" if "sleep" in change else "60", **files)
    said = [found.said, *(arm.get("why", "") for line in found.lines for arm in line["cases"]["call"]["arms"].values())]
    assert any(sentence in one for one in said), said
    assert sentence or found.code == 0, said
    assert started_below() <= others, "no rank is left of either side"


STARTS = {
    "spawn": "assert 'WORLD_SIZE' not in os.environ\nmp.spawn(start, args=(2,), nprocs=2)",
    "start_processes": "mp.start_processes(start, args=(2,), nprocs=2, start_method='fork')",
    "queue": "def put(rank, world, queue):\n"
    "    start(rank, world)\n"
    "    queue.put(rank) if rank == 0 else None\n"
    "queue = mp.get_context('spawn').Queue()\n"
    "mp.spawn(put, args=(2, queue), nprocs=2)\n"
    "assert queue.get() == 0",
    "store": "def stored(rank, world):\n"
    "    store = dist.TCPStore('localhost', 29501, world, rank == 0)\n"
    "    dist.init_process_group('nccl', store=store, rank=rank, world_size=world)\n"
    "    main(rank)\n"
    "mp.spawn(stored, args=(2,), nprocs=2)",
    "processes": "from multiprocessing import Queue\ndef put(rank, world, queue):\n"
    "    start(rank, world)\n"
    "    queue.put(rank)\n"
    "queue = Queue()\nps = [mp.Process(target=put, args=(rank, 2, queue)) for rank in range(2)]\n"
    "[p.start() for p in ps]\nassert {queue.get() for _ in ps} == {0, 1}\n"
    "[p.join() for p in ps]\nassert not any(p.exitcode for p in ps)",
    "pool": "def pooled(rank, world):\n"
    "    start(rank, world)\n"
    "    return rank\n"
    "with mp.Pool(2) as pool:\n"
    "    asked = [pool.apply_async(pooled, (rank, 2)) for rank in range(2)]\n"
    "    pool.close()\n"
    "    pool.join()\n"
    "    assert [one.get() for one in asked] == [0, 1]",
    "launcher": "from torch.distributed.launcher.api import LaunchConfig, elastic_launch\n"
    "def own(world):\n    start(int(os.environ['RANK']), world)\n"
    "elastic_launch(LaunchConfig(1, 1, 2, rdzv_endpoint='localhost:0'), own)(2)",
    "torchrun": "import subprocess, sys\n"
    "command = [sys.executable, '-m', 'torch.distributed.run', '--nproc-per-node=2', 'bench/inner.py', '--fast']\n"
    "subprocess.run(command, check=True)",
}


@pytest.mark.parametrize("start", mostly_nightly(STARTS, "spawn", "torchrun"))
@pytest.mark.slow
def test_ranks_that_a_script_starts_itself_are_taken_over(adopt, start):
    script = f"{BY_SPAWN}\nif __name__ == '__main__':\n    import torch.multiprocessing as mp\n"
    script += "".join(f"    {line}\n" for line in STARTS[start].splitlines())
    files = {
        "mylib/__init__.py": LIBRARY,
        "bench/inner.py": f"import sys\nassert sys.argv[1:] == ['--fast']\n{BY_TORCHRUN}",
    }
    found = adopt(script, "--device", "cpu", "--deadline", "30", head=files, base=files)
    assert found.code == 0, found.said
    assert [arm["status"] for arm in found.arms().values()] == ["ok", "ok"]
    assert all(len(arm["rank_s"]) == 2 for arm in found.arms().values())


@pytest.mark.slow
def test_ranks_that_time_different_things_are_named_at_once(adopt):
    script = BY_TORCHRUN.replace('main(int(os.environ["LOCAL_RANK"]))', "dist.get_rank() or main(0)")
    found = adopt(script, *CPU, base={"mylib/__init__.py": LIBRARY}, head={"mylib/__init__.py": LIBRARY})
    assert found.code == 3
    assert "its ranks time different things: rank 0 is at script.py:9, rank 1 has ended" in found.said


def event(line, **more):
    return {"event": "seen", "line": line, "backend": "mine", "case": "x=1", **more}


def test_what_a_rank_passes_on_all_ranks_have(monkeypatch):
    from torch.distributed import HashStore

    store, both = HashStore(), threading.Barrier(2)
    monkeypatch.setattr(Ranks, "_store", store)
    monkeypatch.setattr(Ranks, "meet", lambda _: both.wait())

    def rank(number):
        own = Ranks(number, 2)
        manager = SharedManager(dict, own._queue, own._holding)  # a real one is not needed
        results, rows, passed = manager.dict(size=1), manager.list(), manager.Queue()
        for turn in range(2):
            with own._of_a_process(2, "a test"):
                results[f"rank {number}"] = turn
                rows.append((turn, number))
                if number == 1:
                    passed.put({"turn": turn})
            assert passed.get() == {"turn": turn}
        assert passed.empty()
        assert own._results(2, dict.fromkeys(range(3), lambda: number)) == {0: 0, 1: 1, 2: 0}
        return results, rows

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(rank, range(2))
    assert first == second == ({"size": 1, "rank 0": 1, "rank 1": 1}, [(0, 0), (0, 1), (1, 0), (1, 1)])


def test_calls_of_a_pool_are_made_once_when_their_results_are_wanted():
    made = []

    def make(processes, calls):
        made.append((processes, [*calls]))
        return {number: call() for number, call in calls.items()}

    pool = SharedPool(make, 3)
    assert pool.map(abs, [-1, -2]) == [1, 2]
    with pool:
        later = pool.apply_async(abs, (-3,))
        assert len(made) == 1
    assert (later.get(), made) == (3, [(3, [0, 1]), (3, [2])])


def test_ranks_at_different_places_are_named():
    assert disagreement([event("b.py:3"), event("b.py:3")]) == ""
    assert disagreement([event("b.py:3"), {"code": 0, "programs": []}]) == (
        "its ranks time different things: rank 0 is at b.py:3, rank 1 has ended"
    )


def test_the_rank_that_ended_badly_first_speaks():
    ends = [{"code": 1, "why": "it waited", "ended_at": 2.0}, {"code": 1, "why": "no memory", "ended_at": 1.0}, None]
    assert joint_end(ends)["why"] == "rank 1 of 3: no memory"


def test_facts_of_ranks_are_those_of_one_process():
    one = {"expected_s": 1.0, "repeats": True, "bits": "a", "ran": {"f": "1"}, "unseen": "", "outputs": ["f[2]"]}
    other = {**one, "expected_s": 2.0, "repeats": False, "bits": "", "case": "peer=1", "backend": "mine"}
    found = joint_facts([event("b.py:3", **one), event("b.py:3", **other)])
    assert (found["expected_s"], found["repeats"], found["bits"]) == (2.0, False, "")
    assert found["ran"] == {"f": "1"}
    assert found["names"] == ["mine/x=1", "mine/peer=1"]


def test_a_sample_of_a_trial_is_the_mean_of_its_starts():
    def start(base_s, head_s, later=2.0):
        arms = {role: arm(one, later) for role, one in (("base", base_s), ("head", head_s))}
        return {"method": "events of ranks", "arms": arms, "warnings": ["alike"]}

    def arm(seconds, later):
        return {"status": "ok", "seconds": [seconds, later * seconds], "skew_s": [0.0, 0.0], "rank_s": [seconds, 1.0]}

    found = joint_starts([start(1.0, 3.0), start(3.0, 1.0)])
    assert found["arms"]["base"]["seconds"] == found["arms"]["head"]["seconds"] == [2.0, 4.0]
    assert found["warnings"] == ["alike"]
    [*_, uneven] = joint_starts([start(1.0, 1.1, later=1.001)])["warnings"]
    assert joint_starts([start(1.0, 1.1)])["warnings"] == ["alike"], "its samples scatter by more"
    single = {"status": "ok", "seconds": [1.0], "rank_s": [1.0, 1.0]}
    arms = {"base": single, "head": {**single, "rank_s": [1.5, 1.0]}}
    assert joint_starts([{"arms": arms, "warnings": []}])["warnings"] == [], "one sample says nothing of its scatter"
    assert uneven == "head takes longer on some ranks than on others: rank 0 +10.0 %, rank 1 +0.0 %"
    failed = start(1.0, 1.0)
    failed["arms"]["head"] = {"status": "crash", "why": "killed"}
    assert joint_starts([start(1.0, 1.0), failed])["arms"]["head"] == {"status": "crash", "why": "killed"}


def test_alone_a_process_waits_for_nobody_and_a_group_of_several_says_how_many():
    alone = Ranks()
    alone.meet()
    assert (alone.any(False), alone.all(True), alone.barrier(True), alone.variables()) == (False, True, None, {})
    with pytest.raises(SeveralProcesses, match="spawn of 4 ranks") as told:
        alone.expect(4, "spawn")
    assert told.value.ranks == 4


@pytest.mark.parametrize(
    ("text", "sets"),
    [
        ("os.environ['LOCAL_RANK']", False),
        ("os.environ['MASTER_PORT'] = '1'", False),
        ("os.environ.setdefault('NCCL_DEBUG', 'INFO')", True),
        ("del os.environ['A']", True),
        ("names.update(environ)", False),
        ("import torch\nos.environ['A'] = '1'", False),
        ("def f():\n    import torch\nos.environ['A'] = '1'\nimport torch", True),
    ],
)
def test_a_script_that_reads_variables_sets_none(text, sets):
    assert sets_variables(text) is sets
