"""The rows of a CSV that somebody else wrote, one by one: a file of any size, or a pipe, takes the memory of a row.

Comma, semicolon or tab; UTF-8 with or without a byte-order mark, or UTF-16 with one; plain or .gz.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import itertools
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

DELIMITERS = ",;\t"

LONGEST_FIELD = 1_000_000
"""Characters: what is longer is an unclosed quote, not a cell."""


class TableFileError(Exception):
    """A file of which no table can be made; the text says what was found, what is needed and what to do."""


def opened(path: str) -> BinaryIO:
    """A file, or stdin where the path is `-`; OSError where it cannot be opened."""
    return sys.stdin.buffer if path == "-" else Path(path).open("rb")


class CsvRows:
    """The rows of a file that are not empty, as (line number, cells); shown: what the file is called.

    first: its first line that is not empty.  TableFileError, now or later, where it is none that can be read.
    """

    def __init__(self, raw: BinaryIO, shown: str) -> None:
        self._lines, self._shown, self._skipped, self.first = _text(raw), shown, 0, ""
        with self._named():
            self.first = self._lines.readline(LONGEST_FIELD)
            while self.first and not self.first.strip("\r\n"):
                self._skipped, self.first = self._skipped + 1, self._lines.readline(LONGEST_FIELD)

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        outside_quotes = "".join(self.first.split('"')[::2])
        csv.field_size_limit(LONGEST_FIELD)
        lines = itertools.chain([self.first], self._lines)
        reader = csv.reader(lines, delimiter=max(DELIMITERS, key=outside_quotes.count))
        with self._named():
            yield from ((reader.line_num + self._skipped, row) for row in reader if row)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise TableFileError(f"{self._shown} is a damaged .gz file ({error}); copy it again") from error
        except csv.Error as error:
            raise TableFileError(f"{self._shown} is not a CSV: {error}; is a quote left open?") from error


def _text(raw: BinaryIO) -> io.TextIOWrapper:
    plain = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
    packed = plain.peek(2)[:2] == b"\x1f\x8b"
    content = gzip.GzipFile(fileobj=plain) if packed else plain
    wide = _begins(content) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return io.TextIOWrapper(content, encoding="utf-16" if wide else "utf-8-sig", errors="replace", newline="")


def _begins(content: gzip.GzipFile | io.BufferedReader[Any]) -> bytes:
    """The first two bytes; of a damaged file none, which its first line will say."""
    try:
        return content.peek(2)[:2]
    except (EOFError, OSError, zlib.error):
        return b""
