"""What a case asks of this machine before a Triton kernel is launched."""

from __future__ import annotations

import os

from kernels.spec import Case, Unsupported


def need_triton(case: Case) -> None:
    """Unsupported where Triton cannot run."""
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise Unsupported(f"Triton cannot be imported ({error}); install the triton of this torch") from error
    if case.place.device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise Unsupported("Triton has no CPU code generator; a GPU is needed (or TRITON_INTERPRET=1, for tests)")
