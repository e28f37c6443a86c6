"""torch.cuda as a machine with one MI300X or MI355X has it: what it is, its memory, random numbers, and what is nothing
to do where every launch is complete when it returns."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch

from ..triton_driver import HBM_BITS
from . import backend, generators, refusals, streams
from .product import HIP, hardware
from .session import free_bytes


def properties(arch: str) -> SimpleNamespace:
    """What torch.cuda.get_device_properties gives (CDNA3 and CDNA4 ISA documents; kernels/hardware.py)."""
    product = hardware(arch)
    major, minor = capability(arch)
    return SimpleNamespace(
        name=f"AMD Instinct {product.market_name}",
        gcnArchName=f"{arch}:sramecc+:xnack-",
        major=major,
        minor=minor,
        total_memory=product.hbm_bytes,
        multi_processor_count=product.compute_units,
        warp_size=product.wave_size,
        L2_cache_size=product.l2_bytes,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=product.waves_per_simd * product.simds * product.wave_size,
        regs_per_multiprocessor=product.vgpr_file_bytes // 4,
        shared_memory_per_block=product.lds_bytes,
        shared_memory_per_block_optin=product.lds_bytes,
        shared_memory_per_multiprocessor=product.lds_bytes,
        clock_rate=1000 * product.clock_mhz,
        memory_clock_rate=round(product.hbm_bandwidth / (2 * HBM_BITS / 8) / 1000),
        memory_bus_width=HBM_BITS,
        is_integrated=False,
        is_multi_gpu_board=False,
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
        uuid="00000000-0000-0000-0000-000000000000",
    )


def capability(arch: str) -> tuple[int, int]:
    """What ROCm's torch reports: gfx942 as (9, 4), gfx950 as (9, 5)."""
    return 9, int(arch[4])


def attach(arch: str) -> None:
    """Give torch.cuda, torch.version and torch's other functions what they have on a machine with the device."""
    backend.attach()
    facts, generator = properties(arch), generators.default
    torch.version.hip, torch.version.cuda = HIP, None  # type: ignore[assignment]
    torch.Generator = generators.AnyGenerator  # type: ignore[assignment,misc]
    torch.compile = refusals.torch_compile  # type: ignore[assignment]
    cuda = torch.cuda

    def statistics(*args: Any, **kwargs: Any) -> dict[str, int]:
        now, peak = backend.held["now"], backend.held["peak"]
        kinds = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
        return {f"{kind}.all.{which}": bytes_ for kind in kinds for which, bytes_ in (("current", now), ("peak", peak))}

    def reset_peak(*args: Any, **kwargs: Any) -> None:
        backend.held["peak"] = backend.held["now"]

    def of_device(value: Any) -> Any:
        return lambda device=None: (checked(device), value)[1]

    @contextlib.contextmanager
    def inside(*args: Any, **kwargs: Any) -> Any:
        yield

    class Device:
        """torch.cuda.device and device_of: the only one is always current."""

        def __init__(self, device: Any = None) -> None:
            checked(device)
            self.idx, self.prev_idx = 0, 0

        def __enter__(self) -> None:
            return None

        def __exit__(self, *error: Any) -> None:
            return None

    replaced: dict[str, Any] = {
        "_lazy_init": always(None), "init": always(None), "is_available": always(True),
        "is_initialized": always(True), "_initialized": True,
        "_is_in_bad_fork": always(False), "device_count": always(1), "current_device": always(0),
        "set_device": of_device(None), "synchronize": always(None), "ipc_collect": always(None),
        "empty_cache": always(None),
        "device": Device, "device_of": type("device_of", (Device,), {}), "can_device_access_peer": always(False),
        "get_device_properties": of_device(facts), "get_device_name": of_device(facts.name),
        "get_device_capability": of_device((facts.major, facts.minor)), "_sleep": always(None),
        "get_arch_list": always([arch]),
        "is_bf16_supported": always(True), "is_tf32_supported": always(False), "utilization": always(0),
        "memory_allocated": lambda *a, **k: backend.held["now"], "memory_reserved": lambda *a, **k: backend.held["now"],
        "max_memory_allocated": lambda *a, **k: backend.held["peak"],
        "max_memory_reserved": lambda *a, **k: backend.held["peak"],
        "reset_peak_memory_stats": reset_peak, "reset_max_memory_allocated": lambda *a, **k: reset_peak(),
        "reset_accumulated_memory_stats": always(None), "memory_stats": statistics, "memory_summary": always(""),
        "mem_get_info": lambda *a, **k: (free_bytes(), facts.total_memory),
        "set_per_process_memory_fraction": always(None), "memory_snapshot": always([]),
        "_record_memory_history": always(None), "_dump_snapshot": always(None),
        "set_sync_debug_mode": always(None), "get_sync_debug_mode": always(0), "host_memory_stats": always({}),
        "manual_seed": lambda seed: generator.manual_seed(seed) and None,
        "manual_seed_all": lambda seed: generator.manual_seed(seed) and None,
        "seed": lambda: generator.seed() and None, "seed_all": lambda: generator.seed() and None,
        "initial_seed": lambda: generator.initial_seed(),
        "get_rng_state": lambda *a, **k: generator.get_state(), "get_rng_state_all": lambda: [generator.get_state()],
        "set_rng_state": lambda state, *a, **k: generator.set_state(state) and None,
        "set_rng_state_all": lambda states: generator.set_state(states[0]) and None, "default_generators": (generator,),
        "Stream": streams.Stream, "Event": streams.Event, 
        "ExternalStream": type("ExternalStream", (streams.Stream,), {}), "stream": inside,
        "StreamContext": lambda *a, **k: inside(), "current_stream": always(streams.CURRENT),
        "default_stream": always(streams.CURRENT),
        "set_stream": always(None), "CUDAGraph": streams.Graph, "graph": streams.graph,
        "graph_pool_handle": always((0, 0)), "make_graphed_callables": streams.make_graphed_callables,
        "is_current_stream_capturing": lambda: streams.CURRENT.is_capturing(),
    }  # fmt: skip
    for name, value in replaced.items():
        setattr(cuda, name, value)
    for module in (cuda.memory, cuda.random, cuda.streams, cuda.graphs):
        for name, value in replaced.items():
            if hasattr(module, name):
                setattr(module, name, value)
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(cuda.nvtx, name, always(0))
    torch._C._cuda_getCurrentRawStream = always(streams.CURRENT.cuda_stream)  # type: ignore[attr-defined]
    torch.Stream, torch.Event = streams.Stream, streams.Event  # type: ignore[misc,assignment]
    for kind in LEGACY:
        setattr(cuda, kind, type(kind, (_Legacy,), {"__module__": "torch.cuda"}))
    torch.set_default_tensor_type = _set_default_tensor_type
    _profiler()
    _accelerator()


LEGACY = ("FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "IntTensor", "ShortTensor",
          "CharTensor", "ByteTensor", "BoolTensor")  # fmt: skip
"""Types of tensors by their names of old."""


class _Type(type):
    def __instancecheck__(cls, one: Any) -> bool:
        return isinstance(one, torch.Tensor) and one.type() == f"torch.cuda.{cls.__name__}"


class _Legacy(metaclass=_Type):
    """torch.cuda.FloatTensor and others: a tensor of the device from what torch.FloatTensor takes."""

    def __new__(cls, *args: Any) -> Any:
        return getattr(torch, cls.__name__)(*args).to(backend.DEVICE)


def _set_default_tensor_type(kind: Any) -> None:
    """torch.set_default_tensor_type, by a type or its name."""
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    torch.set_default_dtype(getattr(torch, name.rpartition(".")[2]).dtype)
    torch.set_default_device("cuda" if name.startswith("torch.cuda.") else "cpu")


def _profiler() -> None:
    """torch.profiler records only the host: the emulator reports neither kernels nor times to it."""
    original = torch.autograd.profiler.profile.__init__

    def init(self: Any, enabled: bool = True, *args: Any, use_device: Any = None, **kwargs: Any) -> None:
        kwargs.pop("use_cuda", None)
        original(self, enabled, **{**kwargs, "use_cpu": True})

    torch.autograd.profiler.profile.__init__ = init  # type: ignore[method-assign]


def checked(device: Any) -> None:
    """RuntimeError of another device than the first: a number, a name, a torch.device, a tensor or None."""
    device = getattr(device, "device", device)
    device = torch.device(device) if isinstance(device, str) else device
    backend.checked_ordinal(device if isinstance(device, int) else getattr(device, "index", None))


def always(value: Any) -> Any:
    """A function that gives it, one for each name: torch's compiler knows functions apart by what they are."""
    return lambda *args, **kwargs: value


def _accelerator() -> None:
    """torch.accelerator, which asks C++ for the device."""
    for name, value in {
        "is_available": always(True), "device_count": always(1), "current_accelerator": always(torch.device("cuda")),
        "current_device_index": always(0), "set_device_index": always(None), "current_stream": always(streams.CURRENT),
        "synchronize": always(None), "empty_cache": always(None),
        "memory_allocated": lambda *a, **k: backend.held["now"],
        "max_memory_allocated": lambda *a, **k: backend.held["peak"],
        "get_memory_info": torch.cuda.mem_get_info, "reset_peak_memory_stats": torch.cuda.reset_peak_memory_stats,
    }.items():  # fmt: skip
        setattr(torch.accelerator, name, value)
