"""What each column of a table is: a key, a backend, or a ratio that somebody printed beside its numbers."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ci.tables.csv_rows import TableFileError

SHAPE = frozenset(
    """
    B D E G H K M N S T W m n k batch batch_size bs case case_id id index row experts groups group_size heads head_dim
    hidden inter layer rank ranks world world_size seq seqlen seq_len size bytes count tokens topk top_k elements cus
    """.split()  # noqa: SIM905
)
"""Names of numbers that say which case a row is: the dimensions of this project's cases and of the tables that its
operators were taken from (kernels/, 2026-11)."""


@dataclass(frozen=True)
class AskedColumns:
    """What the caller says of the columns; empty where it is left to the file."""

    columns: tuple[str, ...] = ()
    baseline: str = ""
    by: tuple[tuple[str, ...], ...] = ()
    regret: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def backends(self) -> tuple[str, ...]:
        """Columns that are named as backends, each once."""
        chosen = [name for column, from_ in self.regret for name in (column, *from_)]
        return tuple(dict.fromkeys([*([self.baseline] if self.baseline else []), *self.columns, *chosen]))

    @property
    def grouped(self) -> frozenset[str]:
        return frozenset(name for one in self.by for name in one)

    def within(self, header: Sequence[str]) -> AskedColumns:
        """With the names as the header has them; TableFileError where it has none."""

        def found(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(named(name, header) for name in names)

        return AskedColumns(
            columns=found(self.columns),
            baseline=named(self.baseline, header) if self.baseline else "",
            by=tuple(map(found, self.by)),
            regret=tuple((named(column, header), found(from_)) for column, from_ in self.regret),
        )


@dataclass(frozen=True)
class Roles:
    """Names of columns.  backends: all that are read as numbers.  compared: those of them that are shown, the baseline
    among them.  printed: (name, numerator, denominator).  unused: numbers that nobody asked for.

    identity: what tells rows apart: the keys, and what is not used left of the backends, as it may be a key too.
    asked: what was asked for, with the names of the header.
    """

    keys: tuple[str, ...]
    backends: tuple[str, ...]
    compared: tuple[str, ...]
    baseline: str
    printed: tuple[tuple[str, str, str], ...]
    unused: tuple[str, ...]
    identity: tuple[str, ...]
    asked: AskedColumns


def roles(header: Sequence[str], numeric: Callable[[str], bool], asked: AskedColumns) -> Roles:
    """Backends are what was asked for, else the columns of numbers behind the keys; TableFileError names what fails.

    numeric: whether most cells of a column are numbers.  A column named as a dimension is a key, and so is one that
    rows are grouped by.
    """
    asked = asked.within(header)
    printed = tuple(_printed(header))
    plain = [name for name in header if name not in {one[0] for one in printed}]
    found = _columns_of_numbers(plain, numeric, asked)
    backends = tuple(name for name in plain if name in (asked.backends if asked.columns else (*found, *asked.backends)))
    if len(backends) < 2:
        raise TableFileError(_too_few(backends, header, asked))
    baseline = asked.baseline or (asked.columns or backends)[0]
    compared = tuple(dict.fromkeys([*asked.columns, baseline])) if asked.columns else backends
    unused = tuple(name for name in found if name not in backends)
    keys = tuple(name for name in plain if name not in backends and name not in unused)
    first = min(map(plain.index, backends))
    identity = tuple(name for name in plain if name in keys or (name in unused and plain.index(name) < first))
    return Roles(keys, backends, compared, baseline, printed, unused, identity, asked)


def named(name: str, header: Sequence[str]) -> str:
    """The column of this name, or the only `name: quantity`, as studies write it; TableFileError offers the nearest."""
    if name in header:
        return name
    of_name = [column for column in header if column.partition(": ")[0] == name]
    if len(of_name) == 1:
        return of_name[0]
    near = difflib.get_close_matches(name, header, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise TableFileError(f"there is no column {name!r}; the columns are {', '.join(header)}{hint}")


def _columns_of_numbers(plain: Sequence[str], numeric: Callable[[str], bool], asked: AskedColumns) -> tuple[str, ...]:
    """Columns of numbers behind the last text that has any behind it; further left only what was named."""
    found = [i for i, name in enumerate(plain) if name in asked.backends or _is_backend(name, numeric, asked)]
    text = (i for i, name in enumerate(plain) if name not in asked.backends and not numeric(name))
    start = max((i for i in text if i < max(found, default=0)), default=-1)
    return tuple(plain[i] for i in found if i > start or plain[i] in asked.backends)


def _is_backend(name: str, numeric: Callable[[str], bool], asked: AskedColumns) -> bool:
    return name not in SHAPE and name not in asked.grouped and numeric(name)


def _printed(header: Sequence[str]) -> list[tuple[str, str, str]]:
    parts = [(name, *(part.strip() for part in name.split("/"))) for name in header if name.count("/") == 1]
    return [(name, over, under) for name, over, under in parts if {over, under} <= set(header) - {name}]


def _too_few(backends: Sequence[str], header: Sequence[str], asked: AskedColumns) -> str:
    if asked.columns:
        return f"--columns and --baseline name {backends[0]!r} only; a comparison needs two columns"
    found = f"only {backends[0]!r} is a column of numbers" if backends else "no column of numbers was found"
    return (
        f"{found} among {', '.join(header)}; a comparison needs two. Give the columns by name: "
        "--columns a,b --baseline a"
    )
