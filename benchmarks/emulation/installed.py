"""Whether what the emulator needs is installed: it is an extra."""

from importlib.util import find_spec

NEEDED = ("tinygrad", "elftools", "msgpack", "torch")
"""Modules, most of the extra `emulate`, without which nothing is executed."""


def missing() -> str:
    """What to install before anything can be executed, "" if all is there."""
    absent = [name for name in NEEDED if find_spec(name) is None]
    return f"{', '.join(absent)} not installed: pip install 'ridgeline[emulate]'" if absent else ""
