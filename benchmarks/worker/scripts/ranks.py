"""The ranks that run a script together: the place of each, where they meet, and what of torch.distributed is changed.

Every rank is a process of its own that runs the script from its first line.  One that is started as torchrun starts it
finds torchrun's variables and a store of c10d.  One that would start its ranks itself (torch.multiprocessing.spawn,
multiprocessing.Process, torch.distributed.launcher) calls the function of its own rank instead.  Whatever address a
script asks for, its process groups meet at the store of its side, as the other side runs at the same time.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import inspect
import itertools
import linecache
import os
import pickle
import queue
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

from ...channel import ADDRESS, free_port

PATIENCE = datetime.timedelta(days=1)
"""How long ranks wait for each other here: the coordinator has the deadlines."""


class SeveralProcesses(BaseException):
    """The script wants ranks, or another number of them.  Not an Exception: a script must not take it for a case that
    failed.  ranks: how many it starts itself, 0 where that is not known.
    """

    def __init__(self, why: str, ranks: int = 0) -> None:
        super().__init__(why)
        self.ranks = ranks


class Ranks:
    """This process among those of its side.  port: of the side's store of c10d.  store: file of the harness's own.

    What is called on one rank must be called on all; alone a process waits for nobody.  before_group: called where the
    script makes the group of all its ranks.
    """

    def __init__(self, rank: int = 0, world: int = 1, port: int = 0, store: str = "") -> None:
        self.rank, self.world, self._port, self._store_file = rank, world, port, store
        self._server: Any = None
        self._processes: list[Any] = []
        self.before_group: Callable[[FrameType], None] = lambda frame: None
        self._queues, self._exchanges = itertools.count(), itertools.count()
        self._held: list[tuple[Any, Any]] = []

    def variables(self) -> dict[str, str]:
        """What torchrun sets for a process of one node."""
        if self.world == 1:
            return {}
        return {
            **dict.fromkeys(("RANK", "LOCAL_RANK"), str(self.rank)),
            **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(self.world)),
            "GROUP_RANK": "0",
            "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "MASTER_ADDR": ADDRESS,
            "MASTER_PORT": str(self._port),
        }

    def path(self, base: str) -> str:
        """The file of this rank among those of a name."""
        return base if self.world == 1 else f"{base}.{self.rank}"

    def say(self, error: Exception) -> None:
        """Print it, if there are others."""
        if self.world > 1:
            print(f"rank {self.rank}: {''.join(traceback.format_exception(error))}", file=sys.stderr, flush=True)

    def use(self, devices: Iterable[Any]) -> None:
        """Make the device of a closure's tensors the current one: a rank may name its device, and not set it."""
        import torch

        used = {one for one in devices if one.type == "cuda"}
        if self.world > 1 and len(used) == 1:
            torch.cuda.set_device(used.pop())

    # ---- meeting -------------------------------------------------------------------------------------------------

    def meet(self) -> None:
        """Wait until all ranks are here."""
        if self.world > 1:
            self._hosts.barrier().wait()

    def any(self, holds: bool) -> bool:
        """Whether something holds on some rank."""
        if self.world == 1:
            return holds
        import torch

        token = torch.tensor([int(holds)])
        self._hosts.allreduce([token]).wait()
        return bool(token)

    def all(self, holds: bool) -> bool:
        """Whether something holds on every rank."""
        return not self.any(not holds)

    def barrier(self, gpu: bool) -> Callable[[], Any] | None:
        """What holds a sample until all ranks are here; on a GPU it is enqueued, and the host does not wait."""
        if self.world == 1:
            return None
        if not gpu:
            return self.meet
        import torch

        group, token = self._devices, torch.zeros(1, device="cuda")
        return lambda: group.allreduce([token]).wait()

    @functools.cached_property
    def _hosts(self) -> Any:
        """A group of the harness: those of the script are its own, and may be none."""
        import torch.distributed as dist

        kind = dist.ProcessGroupGloo
        options = kind._Options()
        options._devices, options._timeout = [kind.create_device(hostname=ADDRESS)], PATIENCE
        return kind(self._shared("hosts"), self.rank, self.world, options)

    @functools.cached_property
    def _devices(self) -> Any:
        import torch.distributed as dist

        options = dist.ProcessGroupNCCL.Options()
        options.config.max_ctas = 1  # a communicator of few buffers: it sends 4 bytes
        return dist.ProcessGroupNCCL(self._shared("devices"), self.rank, self.world, options)

    @functools.cached_property
    def _store(self) -> Any:
        """Of what the script passes between its ranks."""
        return self._shared("passed")

    def _shared(self, name: str) -> Any:
        import torch.distributed as dist

        return dist.PrefixStore(name, dist.FileStore(self._store_file, self.world))

    # ---- torch.distributed, and ranks that a script starts itself --------------------------------------------------

    def of_distributed(self, module: Any, on_cpu: bool) -> None:
        """torch.distributed: the groups of a script meet at its side's store; on_cpu: by gloo."""
        if not hasattr(module, "init_process_group"):
            return
        link = functools.partial(module.TCPStore, ADDRESS, self._port, None)
        if self.world > 1:
            if self.rank == 0:
                self._server = link(True, wait_for_workers=False)
            module.TCPStore = self._own_store(module.TCPStore)
        times = itertools.count()
        real = module.init_process_group

        @functools.wraps(real)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            asked = dict(inspect.signature(real).bind(*args, **kwargs).arguments)
            world = asked.get("world_size") or -1
            self.expect(int(os.environ.get("WORLD_SIZE", "0")) if world == -1 else int(world), "init_process_group")
            if self.world > 1:
                self.before_group(sys._getframe(1))
                if asked.get("store") is None:  # a second group must not find the keys of the first
                    asked |= {"init_method": None, "store": module.PrefixStore(f"group {next(times)}", link(False))}
                asked |= {"rank": self.rank, "world_size": self.world}
            if on_cpu:
                asked |= {"backend": "gloo", "device_id": None}
            return real(**{key: one for key, one in asked.items() if one is not None})

        for owner in (module, module.distributed_c10d):
            owner.init_process_group = init_process_group
        if on_cpu:
            module.new_group = without(module.new_group, backend="gloo", device_id=None, pg_options=None)
            module.barrier = without(module.barrier, device_ids=None)
            module.DeviceMesh.__init__ = without(module.DeviceMesh.__init__, device_type="cpu")

    def _own_store(self, real: Any) -> Any:
        """TCPStore for a script, at a port of its side's own: a number in its text is the same on both sides."""
        times: dict[int, int] = {}

        def port_of(port: int, is_master: bool) -> int:
            link = self._server or real(ADDRESS, self._port, None, False)
            times[port] = times.get(port, 0) + 1
            name = f"port {port}, {times[port]}"
            if is_master:
                link.set(name, str(free_port()))
            return int(link.get(name))

        class TCPStore(real):  # type: ignore[misc]
            def __init__(self, host_name: str, port: int, *args: Any, **kwargs: Any) -> None:
                if port and kwargs.get("master_listen_fd") is None:
                    is_master = kwargs.get("is_master", args[1] if len(args) > 1 else False)
                    host_name, port = ADDRESS, port_of(port, bool(is_master))
                super().__init__(host_name, port, *args, **kwargs)

        return TCPStore

    def of_multiprocessing(self, module: Any, owns: Callable[[str], bool]) -> None:
        """torch.multiprocessing: of the processes that are spawned, this one is its rank's; what a script passes
        between them.  owns: whether a file is the user's.
        """
        for name in ("spawn", "start_processes"):
            if real := getattr(module, name, None):
                setattr(module, name, self._spawning(f"torch.multiprocessing.{name}", real))
        import multiprocessing.context

        for owner in (module, multiprocessing, multiprocessing.context.BaseContext):
            for name in ("Queue", "SimpleQueue", "JoinableQueue", "Manager", "Pool"):
                if real := getattr(owner, name, None):
                    setattr(owner, name, self._passing(name, real, owns))

    def _passing(self, name: str, real: Any, owns: Callable[[str], bool]) -> Any:
        @functools.wraps(real)
        def made(*args: Any, **kwargs: Any) -> Any:
            own, file = functools.partial(real, *args, **kwargs), sys._getframe(1).f_code.co_filename
            if not owns(file) or (name == "Pool" and not is_distributed(file)):
                return own()
            if name == "Pool":
                given = [one for one in args if not hasattr(one, "get_start_method")]  # a method of a context, too
                return SharedPool(self._results, kwargs.get("processes", given[0] if given else None))
            if self.world == 1:
                return self._alone(own())
            return SharedManager(own, self._queue, self._holding) if name == "Manager" else self._queue()

        return made

    def _alone(self, passing: Any) -> Any:
        """A queue of a process that knows of no other ranks yet: whoever waits for it is told that there are some."""

        def waiting(real: Any) -> Any:
            def waited(*args: Any, **kwargs: Any) -> Any:
                self._run_started()
                return real(*args, **kwargs)

            return waited

        for name in ("get", "get_nowait", "empty"):
            if real := getattr(passing, name, None):
                setattr(passing, name, waiting(real))
        return passing

    def _spawning(self, name: str, real: Any) -> Any:
        @functools.wraps(real)
        def spawn(fn: Any, args: Sequence[Any] = (), nprocs: int = 1, join: bool = True, *_: Any, **__: Any) -> Any:
            with self._of_a_process(nprocs, name):
                fn(self.rank, *args)
            return None if join else JOINED

        return spawn

    def of_launcher(self, module: Any) -> None:
        """torch.distributed.launcher.api: as torchrun, for a function; a program that it is given is not seen."""
        real = module.launch_agent

        @functools.wraps(real)
        def launch_agent(config: Any, entrypoint: Any, args: Sequence[Any], **more: Any) -> Any:
            if not callable(entrypoint):
                return real(config, entrypoint, args, **more)
            with self._of_a_process(config.nproc_per_node * config.max_nodes, "torch.distributed.launcher"):
                os.environ.update(self.variables())
                return {self.rank: entrypoint(*args)}

        module.launch_agent = launch_agent

    def of_subprocess(self, module: Any, run_script: Callable[[str, Sequence[str]], None]) -> None:
        """subprocess: a torchrun that it starts is a run of the script here, by run_script(path, arguments)."""

        def running(name: str, real: Any) -> Any:
            @functools.wraps(real)
            def run(args: Any, *more: Any, **named: Any) -> Any:
                if (asked := of_torchrun(args)) is None:
                    return real(args, *more, **named)
                from torch.distributed.run import determine_local_world_size, parse_args

                found = parse_args(asked)
                with self._of_a_process(determine_local_world_size(found.nproc_per_node), "torchrun"):
                    os.environ.update(self.variables())
                    run_script(os.path.join(named.get("cwd") or "", found.training_script), found.training_script_args)
                return module.CompletedProcess(args, 0, "", "") if name == "run" else 0

            return run

        for name in ("run", "call", "check_call"):
            setattr(module, name, running(name, getattr(module, name)))

    def take(self, process: Any) -> None:
        """A multiprocessing.Process that the script starts as a rank: the first `join` has all that it starts."""
        self._processes.append(process)

        def join(_: Any, timeout: float | None = None) -> None:
            self._run_started()

        instead = {"join": join, "exitcode": 0, "is_alive": lambda _: False}
        instead |= dict.fromkeys(("terminate", "kill", "close"), lambda _: None)
        process.__class__ = type(type(process).__name__, (type(process),), instead)

    def _results(self, processes: int, calls: Calls) -> dict[int, Any]:
        """What the calls of a pool return: this rank makes its own, and gets what the others computed."""
        mine: dict[int, Any] = {}
        with self._of_a_process(processes, "multiprocessing.Pool"):
            mine |= {number: call() for number, call in calls.items() if number % self.world == self.rank}
        return {number: result for results in self._exchanged(mine) for number, result in results.items()}

    def _exchanged(self, mine: Any) -> list[Any]:
        """What each rank brings, by rank; all are here then."""
        if self.world == 1:
            return [mine]
        name = f"exchange {next(self._exchanges)}"
        self._store.set(f"{name}/{self.rank}", pickle.dumps(mine))
        self.meet()
        return [pickle.loads(self._store.get(f"{name}/{rank}")) for rank in range(self.world)]

    def _queue(self, *_: Any, **__: Any) -> SharedQueue:
        return SharedQueue(self._store, next(self._queues), self._run_started)

    def _holding(self, held: Any) -> Any:
        """A dict or list whose additions of all ranks come together where a started process ends."""
        self._held.append((held, held.copy()))
        return held

    def _settle(self) -> None:
        """Give what is held on each rank what the others added."""
        if self._held:
            of_ranks = self._exchanged([additions(held, before) for held, before in self._held])
            for (held, before), *added in zip(self._held, *of_ranks, strict=True):
                more = list(itertools.chain(*added))
                if isinstance(held, dict):
                    held.update(more)
                    before.update(held)
                else:
                    held[len(before) :] = more
                    before[:] = held

    def _run_started(self) -> None:
        """Run this rank's of the processes that the script has started."""
        mine, self._processes = self._processes, []
        if mine:
            with self._of_a_process(len(mine), "multiprocessing.Process"):
                mine[self.rank].run()

    @contextlib.contextmanager
    def _of_a_process(self, world: int, what: str) -> Iterator[None]:
        """What this rank does as one of so many processes of a script; what ends with a process ends behind it."""
        self.expect(world, what)
        with contextlib.suppress(SystemExit):
            yield
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
        self._settle()

    def expect(self, world: int, what: str) -> None:
        """SeveralProcesses for another number of ranks than there are."""
        if world == self.world:
            return
        asked = f"{what} of {world} ranks" if world else f"{what} without WORLD_SIZE"
        raise SeveralProcesses(asked if self.world == 1 else f"{asked}, and {self.world} run", max(world, 0))


def is_distributed(file: str) -> bool:
    """Whether the processes that a file starts are ranks, for all that its text says."""
    return any("distributed" in line for line in linecache.getlines(file))


TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")
"""Modules that are torchrun."""


def of_torchrun(command: Any) -> list[str] | None:
    """The arguments of a command that is torchrun, None for another one."""
    words = shlex.split(command) if isinstance(command, str) else list(map(os.fsdecode, command))
    if os.path.basename(words[0] if words else "") == "torchrun":
        return words[1:]
    at = next((at for at, word in enumerate(words) if word in TORCHRUN and words[at - 1] == "-m"), None)
    return None if at is None else words[at + 1 :]


JOINED = SimpleNamespace(join=lambda *_, **__: True, exitcode=0, processes=())
"""Processes that a script started: they have ended well."""


def without(function: Any, **instead: Any) -> Any:
    """A function with these arguments, whatever it is asked for; one that is None is left out."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        asked = inspect.signature(function).bind(*args, **kwargs).arguments | instead
        return function(**{name: one for name, one in asked.items() if one is not None})

    return called


MULTICAST_OFF = "NVLink multicast is off while two sides are compared on the same GPUs"


class NoMulticast:
    """The address of no multicast memory: 0 for a script that asks whether there is some, an error in any other use."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and other == 0

    def __bool__(self) -> bool:
        return False

    def __hash__(self) -> int:
        return 0

    def _used(self, *_: Any) -> Any:
        raise RuntimeError(MULTICAST_OFF)

    __index__ = __int__ = __add__ = __radd__ = __sub__ = __lt__ = __gt__ = _used
    data_ptr = property(_used)
    """What Triton asks an argument for that is no number."""


def of_symmetric_memory(module: ModuleType) -> None:
    """torch.distributed._symmetric_memory: NVLink multicast is off; a script that uses its address is told so."""
    kind = getattr(module, "_SymmetricMemory", None)  # a build without it has no symmetric memory
    if (real := vars(kind).get("multicast_ptr") if kind else None) is None:
        return

    def multicast_ptr(memory: Any) -> Any:
        return int(real.__get__(memory)) or NoMulticast()

    kind.multicast_ptr = property(multicast_ptr)  # type: ignore[union-attr]


# What a script passes between the ranks that it would start itself: by queues, by what a manager holds, and as results
# of a pool.
#
# Every rank runs the script from its first line, and so has queues, dicts and lists of its own where the script thinks
# of one.  What a rank puts into a queue is for all, in one order; what it adds to a dict or list, others have once all
# have ended what the script started.


class SharedQueue:
    """A queue into which every rank puts, and out of which each gets what all have put.

    store: of all ranks.  run_started: run what the script has started: whoever asks a queue waits for that.
    """

    def __init__(self, store: Any, number: int, run_started: Callable[[], None]) -> None:
        self._store, self._name, self._run_started, self._got = store, f"queue {number}", run_started, 0

    def put(self, item: Any, *_: Any, **__: Any) -> None:
        """For all ranks."""
        at = self._store.add(self._name, 1)
        self._store.set(f"{self._name}/{at}", pickle.dumps(item))

    def get(self, *_: Any, **__: Any) -> Any:
        """The next, once it is there."""
        self._run_started()
        self._got += 1
        return pickle.loads(self._store.get(f"{self._name}/{self._got}"))

    def get_nowait(self) -> Any:
        """The next, or queue.Empty."""
        if self.empty():
            raise queue.Empty
        return self.get()

    def empty(self) -> bool:
        """Whether nothing is there that was not got."""
        return self.qsize() == 0

    def qsize(self) -> int:
        """How many are there that were not got."""
        self._run_started()
        return int(self._store.add(self._name, 0)) - self._got

    def close(self, *_: Any) -> None:
        """Nothing to end."""

    put_nowait, join_thread, cancel_join_thread, join, task_done = put, close, close, close, close


def additions(held: Any, before: Any) -> list[Any]:
    """What a list, or the items that a dict, holds that it did not hold before."""
    if isinstance(held, dict):
        return [(key, value) for key, value in held.items() if key not in before or before[key] is not value]
    return held[len(before) :]


class SharedManager:
    """multiprocessing.Manager: its queues, dicts and lists; all else is of a manager of this rank's own.

    real: makes that one.  queue: makes a queue of all ranks.  holding: see Ranks._holding.
    """

    def __init__(self, real: Callable[[], Any], queue: Callable[..., Any], holding: Callable[[Any], Any]) -> None:
        self._real, self._holding, self._own = real, holding, None
        self.Queue = self.JoinableQueue = queue

    def dict(self, *args: Any, **kwargs: Any) -> Any:
        """A dict of all ranks."""
        return self._holding(dict(*args, **kwargs))

    def list(self, *args: Any) -> Any:
        """A list of all ranks."""
        return self._holding(list(*args))

    def __getattr__(self, name: str) -> Any:
        self._own = self._own or self._real()
        return getattr(self._own, name)

    def shutdown(self) -> None:
        """End the manager of its own, if there is one."""
        if self._own is not None:
            self._own.shutdown()

    def __enter__(self) -> SharedManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


Calls = dict[int, Callable[[], Any]]
"""Calls of a pool, by their number."""


class SharedPool:
    """multiprocessing.Pool: of its calls each rank makes its own, and has the results of all.

    make: (processes, calls) -> what they return, by number.
    """

    def __init__(self, make: Callable[[int, Calls], dict[int, Any]], processes: int | None = None) -> None:
        self._make, self._processes = make, processes
        self._asked: Calls = {}
        self.results: dict[int, Any] = {}

    def apply_async(
        self, func: Any, args: Sequence[Any] = (), kwds: Mapping[str, Any] | None = None, *_: Any, **__: Any
    ) -> SharedResult:
        """A call."""
        number = len(self.results) + len(self._asked)
        self._asked[number] = functools.partial(func, *args, **(kwds or {}))
        return SharedResult(self, number)

    def starmap(self, func: Any, iterable: Iterable[Sequence[Any]], *_: Any, **__: Any) -> list[Any]:
        """What calls for each of several arguments return."""
        return [one.get() for one in [self.apply_async(func, args) for args in iterable]]

    def map(self, func: Any, iterable: Iterable[Any], *_: Any, **__: Any) -> list[Any]:
        """What a call for each argument returns."""
        return self.starmap(func, ((one,) for one in iterable))

    def join(self) -> None:
        """Make the calls that were not made yet."""
        calls, self._asked = self._asked, {}
        if calls:
            self.results |= self._make(self._processes or len(calls), calls)

    def close(self) -> None:
        """No process has begun."""

    terminate = close

    def __enter__(self) -> SharedPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.join()


class SharedResult:
    """Of a call by its number."""

    def __init__(self, pool: SharedPool, number: int) -> None:
        self._pool, self._number = pool, number

    def get(self, *_: Any, **__: Any) -> Any:
        """What it returns, once all are made."""
        self._pool.join()
        return self._pool.results[self._number]

    wait = get
