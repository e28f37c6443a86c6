"""One heap of equal size on every rank, mapped by all of them: what a collective kernel reads and writes remotely.

All ranks allocate in the same order and sizes, so an allocation has the same offset in every heap and a pointer is
moved to a peer by the difference of two bases (kernels/_shared/symmetric_device.py: translate).  One interface to
three kinds of memory, called homes:

* `torch`: memory of torch.distributed._symmetric_memory (CUDA and HIP).  NVLink multicast is switched off, always: a
  program that dies while it holds a multicast object can take the GPUs of the host out of service.
* `ipc`: memory of the GPU's runtime, mapped by IPC handles, with a barrier of its own on device-side flags.
* on a CPU, one file per rank in /dev/shm, mapped by every rank and unlinked once all have mapped it.

On GPUs `create` takes the home that RIDGELINE_HEAP names.  `auto`, which is the default, takes the one that works;
where both do, the one that is measured to be faster (see choice.py).
"""

from kernels.symmetric_heap.choice import AUTO, CHOICES, VARIABLE, HomeReport, chosen, create, homes, probe
from kernels.symmetric_heap.heap import ALIGNMENT, HeapError, HeapTooSmall, LoneHeap, Memory, SymmetricHeap

__all__ = [
    "ALIGNMENT",
    "AUTO",
    "CHOICES",
    "VARIABLE",
    "HeapError",
    "HeapTooSmall",
    "HomeReport",
    "LoneHeap",
    "Memory",
    "SymmetricHeap",
    "chosen",
    "create",
    "homes",
    "probe",
]
