"""A sealed answer: a line that can only be the answer to one request, whatever else a kernel writes into the pipe.

Every request carries a random seal.  The answer is a keyed digest of its text under that seal, a space, and the text.
A kernel lives in the process that answers, so it could find the seal; but no stray write, no line that looks like an
answer, and no answer of an earlier request can be taken for one.
"""

from __future__ import annotations

import hashlib
import os

LONGEST_ANSWER = 1 << 28
"""Bytes of an answer: a declaration of 1,000 cases has 1 MB, 2,000 samples have 50 KB (2026-11)."""

_SEAL_BYTES, _DIGEST_BYTES = 16, 16
_digest = hashlib.blake2b


class BrokenChannel(Exception):
    """What came is not the answer that was asked for; the text is a clause that says what came."""


def new_seal() -> str:
    """A seal for one request."""
    return os.urandom(_SEAL_BYTES).hex()


def sealed(text: bytes, seal: str) -> bytes:
    """The line of an answer; text: JSON without line breaks."""
    return b"%s %s\n" % (_mark(text, seal), text)


def opened(line: bytes, seal: str) -> bytes:
    """The text of a line; BrokenChannel if it is not the answer to the request with this seal."""
    mark, _, text = line.partition(b" ")
    if not seal or mark != _mark(text, seal):
        raise BrokenChannel(f"{len(line):,} bytes that are no answer came through its channel")
    return text


def _mark(text: bytes, seal: str) -> bytes:
    return _digest(text, digest_size=_DIGEST_BYTES, key=bytes.fromhex(seal)).hexdigest().encode()
