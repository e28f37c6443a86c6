"""torch's device "cuda" in the memory of this process.

A tensor of the device is an EmulatedTensor: it has the dispatch keys of a CUDA tensor and says that it lies on cuda:0,
so autograd, autocast and every rule about devices are torch's own.  Its storage is ordinary memory, in which kernels of
Triton are executed.  Operations run on the CPU in the same dtype.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.jit import _builtins
from torch.utils import _device, _python_dispatch

from ..triton_driver import held_by
from ..waves import in_memory, is_full
from . import arithmetic, generators
from .refusals import NotOnThisDevice

__tracebackhide__ = True  # pytest shows the program's frames alone

DEVICE = generators.DEVICE
CPU = torch.device("cpu")

MIXED = frozenset(("copy_", "fill_", "_to_copy", "_copy_from", "index", "index_put", "index_put_", "_index_put_impl_",
                   "set_", "_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"))  # fmt: skip
"""Operations that take tensors of a host beside those of a device, of any number of elements."""

OURS = ("aten::empty.memory_format", "aten::empty_strided", "aten::copy_", "aten::silu_backward", "aten::mish_backward",
        "aten::_local_scalar_dense")  # fmt: skip
"""Operations that need a kernel of the device: without one torch takes gradients of fp16 apart into operations that
each round, and torch.tensor does not read numbers of the device in a list.  Others come here by its fallback."""

overridden: set[str] = set()
"""Operations for which the program has registered a kernel of its own for the device."""

recorders = threading.local()
"""`graph` of a thread: what records operations instead of changing memory (streams.Graph), while it captures."""


class EmulatedTensor(torch.Tensor):
    """A tensor on cuda:0.  Its own size, strides and storage are the truth; `on_cpu` is a view of them."""

    @staticmethod
    def __new__(cls, memory: torch.Tensor) -> Any:
        """The device's tensor with the storage of a tensor of the host."""
        return torch.Tensor._make_subclass(
            cls, memory, memory.requires_grad, dispatch_device=True, device_for_backend_keys=DEVICE
        )

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every operation below autograd and autocast; C++ asks for the device as well.  A subclass of tensors beside
        it (torchao's, DTensor) is asked first, as beside a plain tensor."""
        if func is torch.ops.prim.device.default:
            return DEVICE
        if not all(issubclass(kind, EmulatedTensor) for kind in types):
            return NotImplemented
        return dispatched(func, args, kwargs or {})

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Of Python, also where a mode takes every call of C++ (fake tensors)."""
        return DEVICE

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        """As torch prints it, with the device."""
        return _with_device(torch._tensor_str._str(self.detach().cpu()), self)

    def __format__(self, spec: str) -> str:
        """As a number where it is one."""
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A leaf with the same values, as torch has it."""
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support deepcopy")
        copied = memo[id(self)] = _like(self, self.detach().clone())
        if self.grad is not None:
            copied.grad = self.grad.__deepcopy__(memo)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Its values, and that they lie on the device."""
        return restored, (self.detach().cpu(), self.requires_grad, getattr(self, "_is_param", False))

    def tolist(self) -> Any:
        """As of any tensor."""
        return self.detach().cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """Refused as on a GPU, unless it is forced."""
        if force:
            return self.detach().cpu().numpy()
        raise TypeError(
            f"can't convert {DEVICE} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __array__(self, dtype: Any = None) -> Any:
        """As numpy."""
        return self.numpy()

    def record_stream(self, stream: Any) -> None:
        """Nothing: there is one stream."""


def _with_device(text: str, tensor: torch.Tensor) -> str:
    end = ", requires_grad=True)" if tensor.requires_grad else ")"
    return f"{text.removesuffix(')')}, device='{DEVICE}'{end}"


def _like(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Values with what `tensor` is beside its own: a parameter, a leaf that wants a gradient."""
    return restored(values, tensor.requires_grad, isinstance(tensor, torch.nn.Parameter))


def restored(values: torch.Tensor, requires_grad: bool, is_parameter: bool) -> torch.Tensor:
    """A tensor of the device with these values; of the host where torch.load is asked for that."""
    tensor = values.to(loading.placed(str(DEVICE))).requires_grad_(requires_grad)
    if is_parameter and not isinstance(tensor, EmulatedTensor):
        return torch.nn.Parameter(tensor, requires_grad)
    if is_parameter:
        tensor._is_param = True  # type: ignore[attr-defined]
    return tensor


def on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the host over the memory of a tensor of the device, conjugated or negated later as that one is."""
    view = torch.empty(0, dtype=tensor.dtype).set_(
        tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
    )
    torch._C._set_conj(view, tensor.is_conj())
    torch._C._set_neg(view, tensor.is_neg())
    return view


def dispatched(func: Any, args: Iterable[Any], kwargs: dict[str, Any]) -> Any:
    """Run an operation on the CPU, by the program's own kernel for the device where it has one.

    Raises RuntimeError, as CUDA does, where tensors of the host stand beside those of the device.
    """
    name = func._schema.name
    own = func.namespace not in TORCHS or (
        not overridden.isdisjoint((name, f"{name}.{func._overloadname}"))
        and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CUDA")  # until its library is gone
    )
    if own:  # its kernel for the device, else for any, else the fallback, which is ours
        return func.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA), *args, **kwargs)
    below = torch.is_inference_mode_enabled() or any(isinstance(a, torch.Tensor) and a.is_inference() for a in args)
    if below and func._can_decompose():  # autograd has not taken it apart, as it does Tensor.cpu
        return func.decompose(*args, **kwargs)
    return run(func, args, kwargs)


TORCHS = ("aten", "prim", "prims", "c10d")
"""Namespaces of torch's own operations; collectives (c10d) are gloo's, over the memory of this process."""


class Moved:
    """The tensors of one operation as the CPU has them."""

    def __init__(self) -> None:
        self.originals: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.of_host = False

    def to_host(self, value: Any) -> Any:
        """An argument, with every tensor of the device as the CPU has it."""
        if isinstance(value, torch.Tensor):
            if isinstance(value, EmulatedTensor):
                view = on_cpu(value)
                self.originals[id(view)] = (value, view)
                return view
            self.of_host |= value.dim() > 0
            return value
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.to_host, value)) if type(value) in (list, tuple) else value
        if isinstance(value, torch.device):
            return CPU if value.type == "cuda" else value
        return value

    def to_device(self, value: Any, wrap: bool) -> Any:
        """A result, with every tensor as the device has it."""
        if isinstance(value, torch.Tensor):
            if pair := self.originals.get(id(value)):
                return pair[0]
            if wrap and (value.layout is not torch.strided or value.is_nested):
                kind = "nested" if value.is_nested else str(value.layout)
                raise NotOnThisDevice(f"a {kind} tensor is not emulated: keep it on the host, or make it dense")
            return allocated(EmulatedTensor(value)) if wrap and not isinstance(value, EmulatedTensor) else value
        if isinstance(value, (list, tuple)):
            return type(value)(self.to_device(each, wrap) for each in value)
        return value


def run(func: Any, args: Iterable[Any], kwargs: dict[str, Any]) -> Any:
    """Run an operation on the CPU over the memory of its tensors."""
    moved = Moved()
    device = kwargs.get("device")
    if isinstance(device, torch.device) and device.type == "cuda":
        checked_ordinal(device.index)
    values = [moved.to_host(value) for value in args]
    named = {name: moved.to_host(value) for name, value in kwargs.items()}
    if named.get("pin_memory"):
        named["pin_memory"] = False
    schema = func._schema
    if moved.of_host and moved.originals and schema.name.partition("::")[2] not in MIXED:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {DEVICE} and cpu! "
            f"(when checking arguments of {schema.name})"
        )
    graph = getattr(recorders, "graph", None)
    perform = functools.partial(graph.operation, schema) if graph is not None else _called

    def performed() -> Any:
        try:
            return perform(_drawing(func, named), values, named)
        except NotImplementedError:
            return perform(arithmetic.in_fp32(func), values, named)

    try:
        result = on_device(performed if schema.is_mutable else functools.partial(in_memory, performed), schema.name)
    except NotImplementedError as error:
        raise NotOnThisDevice(f"{schema.name}, for which torch has no code of a CPU, is not emulated") from error
    if schema.is_mutable:
        for original, view in moved.originals.values():
            _follow(original, view)
    wrap = device.type == "cuda" if isinstance(device, torch.device) else bool(moved.originals)
    return moved.to_device(result, wrap)


def _drawing(func: Any, named: dict[str, Any]) -> Callable[..., Any]:
    """What does it on the CPU, with random numbers of the device's default generator unless another is given."""
    operation = arithmetic.as_on_a_gpu(func)
    draws = torch.Tag.nondeterministic_seeded in func.tags and named.get("generator") is None
    return generators.default.drawing(operation) if draws else operation


def _called(func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What it gives; views in it that are conjugated or negated later are, which torch leaves out below Python."""
    guard, keys = torch._C._SetExcludeDispatchKeyGuard, torch._C.DispatchKey
    with guard(keys.Conjugate, False), guard(keys.Negative, False):
        return func(*args, **kwargs)


def on_device(perform: Callable[[], Any], name: str) -> Any:
    """What an operation or a kernel of this name gives.  OutOfMemoryError, as on a GPU, if this machine has not enough
    memory."""
    try:
        return perform()
    except (MemoryError, RuntimeError) as error:
        if not is_full(error):
            raise
    raise torch.cuda.OutOfMemoryError(
        f"HIP out of memory: {name} has no room in this machine, whose memory the emulated device's tensors "
        f"share ({held['now'] / 2**30:.1f} GiB of them are left)"
    )


def checked_ordinal(index: int | None) -> None:
    """RuntimeError, as HIP has it, of another device than the first."""
    if index:
        raise RuntimeError(
            f"HIP error: invalid device ordinal: cuda:{index} where cuda:0 is the only (emulated) device"
        )


def _follow(tensor: torch.Tensor, view: torch.Tensor) -> None:
    """Give a tensor the size and strides that an operation in place has given to its view."""
    if view.size() == tensor.size() and view.stride() == tensor.stride():
        return
    with torch._C._DisableTorchDispatch():
        torch.ops.aten.as_strided_.default(tensor, view.size(), view.stride(), view.storage_offset())


# Bytes of live storages.

held = {"now": 0, "peak": 0}
_storages: dict[int, Any] = {}


def allocated(tensor: torch.Tensor) -> torch.Tensor:
    """Count the tensor's storage, once, until it is freed."""
    storage = tensor.untyped_storage()
    key, size = storage._cdata, storage.nbytes()
    if key not in _storages:

        def freed(_: Any) -> None:
            del _storages[key]
            held["now"] -= size

        _storages[key] = weakref.ref(storage, freed)
        held["now"] += size
        held["peak"] = max(held["peak"], held["now"])
    return tensor


def storage_at(address: int) -> tuple[int, Any, str] | None:
    """(first address, bytes, what it is) of the live storage in which an address lies."""
    for storage in filter(None, (reference() for reference in list(_storages.values()))):
        if storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes():
            return storage.data_ptr(), held_by(storage), f"a storage of {storage.nbytes()} bytes"
    return None


# What C++ must know of the device.

CUDA_INDEX, MOST_DEVICES, MOST_SLOTS = 1, 32, 64
"""c10::DeviceType::CUDA; at least as many as there are device types, and virtual functions of a class."""

IS_BUILT, HAS_CONTEXT = 2, 4
"""Slots of at::AcceleratorHooksInterface behind its two destructors: isBuilt, and hasPrimaryContext behind isAvailable
(torch 2.11 to 2.15)."""

_kept_alive: list[Any] = []


def _answering(value: int) -> int:
    """Address of a C function that returns a number."""
    function = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(lambda this: value)
    _kept_alive.append(function)
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def _tell_cpp() -> None:
    """Autograd asks C++ for the accelerator's streams and contexts; a build without a GPU has none to answer with.

    The guard of the device becomes torch's own that does nothing, as for tensors without memory, which torch sets where
    a guard counts no device; and the hooks of CUDA say that it is there.
    """
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    c10 = ctypes.CDLL(os.path.join(folder, "libc10.so"))
    guards = (ctypes.c_void_p * MOST_DEVICES).in_dll(c10, "_ZN3c104impl26device_guard_impl_registryE")
    none = (ctypes.c_void_p * MOST_SLOTS)(*[_answering(0)] * MOST_SLOTS)
    without_devices = ctypes.c_void_p(ctypes.addressof(none))
    guards[CUDA_INDEX] = ctypes.addressof(without_devices)
    torch._C._ensureCUDADeviceGuardSet()
    get_hooks = ctypes.CDLL(os.path.join(folder, "libtorch_cpu.so"))._ZN2at6detail12getCUDAHooksEv
    get_hooks.restype = ctypes.c_void_p
    hooks = ctypes.c_void_p.from_address(get_hooks())
    table = (ctypes.c_void_p * MOST_SLOTS)(*(ctypes.c_void_p * MOST_SLOTS).from_address(hooks.value or 0))
    table[IS_BUILT] = table[HAS_CONTEXT] = _answering(1)
    hooks.value = ctypes.addressof(table)
    _kept_alive.extend((none, without_devices, table))


def _register() -> None:
    """The device's kernels: what makes tensors, copies, and a fallback for all else."""
    of_aten, of_all = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
    _kept_alive.extend((of_aten, of_all))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in OURS:
            operator, _, overload = name.removeprefix("aten::").partition(".")
            func = getattr(getattr(torch.ops.aten, operator), overload or "default")
            of_aten.impl(name.removeprefix("aten::"), _kernel(func), "CUDA")
        of_all.fallback(lambda func, *args, **kwargs: run(func, args, kwargs), "CUDA")
    original = torch.library.Library.impl

    def impl(library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **how: Any) -> Any:
        if dispatch_key == "CUDA" or not dispatch_key and library.dispatch_key == "CUDA":
            name = op_name if isinstance(op_name, str) else op_name.name()
            overridden.add(name if "::" in name else f"{library.ns}::{name}")
        return original(library, op_name, fn, dispatch_key, **how)

    torch.library.Library.impl = impl  # type: ignore[method-assign,assignment]


def _kernel(func: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: run(func, args, kwargs)


def _take_as_plain() -> None:
    """Operators that take functions (launches of torch.library.wrap_triton, checkpoints) take the device's tensors as
    they take plain ones: they have rules for subclasses, and none for ours."""
    original, python = HigherOrderOperator.dispatch, torch._C.DispatchKey.Python

    def dispatch(operator: Any, key: Any, /, *args: Any, **kwargs: Any) -> Any:
        plain = key == python and _python_dispatch._get_current_dispatch_mode() is None
        if plain and all(isinstance(one, EmulatedTensor) for one in operator._get_overloaded_args(args, kwargs)):
            key = torch._C.DispatchKey.CUDA
        return original(operator, key, *args, **kwargs)

    HigherOrderOperator.dispatch = dispatch  # type: ignore[method-assign]


def _set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """tensor.data = value: also between a host and a device, as module.to("cuda") does it with parameters."""
    if isinstance(value, EmulatedTensor) == isinstance(tensor, EmulatedTensor):
        _data.__set__(tensor, value)
        return
    moved = value.detach().requires_grad_(tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        if isinstance(moved, EmulatedTensor):
            moved._is_param = True
        else:
            moved = torch.nn.Parameter(moved, tensor.requires_grad)
    torch.utils.swap_tensors(tensor, moved)


_data: Any = torch.Tensor.data

FACTORIES = ("empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like",
             "rand", "rand_like", "randn", "randn_like", "randint", "arange", "tensor")  # fmt: skip
"""Functions of torch that make memory of the host which the device reaches, where they are asked to (pin_memory)."""

_pinned: dict[int, Any] = {}


def _pin() -> None:
    """Memory of the host that the device reaches is ordinary memory, and known as such."""

    def pinned(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
        key = tensor.untyped_storage()._cdata
        _pinned[key] = weakref.ref(tensor.untyped_storage(), lambda _: _pinned.pop(key, None))
        return tensor

    def making(original: Any) -> Any:
        @functools.wraps(original)
        def make(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            return pinned(made) if pin_memory else made

        return make

    for name in FACTORIES:
        setattr(torch, name, making(getattr(torch, name)))
        _builtins._register_builtin(getattr(torch, name), f"aten::{name}")  # for torch.jit.script
    torch.Tensor.pin_memory = lambda tensor, device=None: pinned(tensor.clone())  # type: ignore[method-assign]
    torch.Tensor.is_pinned = lambda tensor, device=None: (  # type: ignore[method-assign,assignment]
        tensor.untyped_storage()._cdata in _pinned
    )


class _Loading(threading.local):
    """Where torch.load puts the tensors of a file that it reads."""

    where: Any = None

    def placed(self, saved: str) -> torch.device:
        """Where a tensor goes that lay at `saved`; torch.load's map_location."""
        to = self.where.get(saved, saved) if isinstance(self.where, dict) else self.where
        return torch.device(saved if to is None else CPU if callable(to) else to)


loading = _Loading()


def _load() -> None:
    """torch.load reads storages into this process's memory, and puts tensors where they belong."""
    original, rebuild = torch.load, torch._utils._rebuild_tensor_v2

    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        before, loading.where = loading.where, map_location
        try:
            return original(f, "cpu", *args, **kwargs)
        finally:
            loading.where = before

    @functools.wraps(rebuild)
    def rebuilt(*args: Any, **kwargs: Any) -> Any:
        tensor = rebuild(*args, **kwargs)
        if tensor.device == CPU and loading.placed("cpu").type == "cuda":
            return allocated(EmulatedTensor(tensor))
        return tensor

    torch.load = load
    torch._utils._rebuild_tensor_v2 = rebuilt


def attach() -> None:
    """Give torch the device; once in a process."""
    _tell_cpp()
    _register()
    _take_as_plain()
    torch.Tensor.data = property(_data.__get__, _set_data)  # type: ignore[assignment]
    _device._device_constructors()  # by what they are before they are replaced, as they are called
    _pin()
    _load()
    torch.serialization.add_safe_globals([restored])
