"""What a benchmark program printed or wrote, as rows: which case, how long or how fast, right or wrong.

A `Reader` is a declaration: how rows are found, which fields name the case, which field is a time or a rate, and what
marks a row, or a whole run, as failed.  `readers.toml` has those of well-known tools; a project adds its own as
`[[reader]]` in ridgeline.toml.  Nothing of a file is dropped in silence: a row without a number is a failed row, and
what is not read at all is told.  Standard library only.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import math
import re
import statistics
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from benchmarks.shapes import UNPRINTABLE, Json, Texts, Unfit, built, form, one_of, that

SHIPPED = Path(__file__).with_name("readers.toml")

ROWS = ("json", "json lines", "csv", "columns", "pattern")
"""How rows are found: see :class:`Reader`."""

TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "sec": 1.0, "seconds": 1.0}
"""Seconds in a unit of time."""

RATES = {
    **{f"{prefix}B/s": ("hbm_bytes", scale) for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("K", 1e3))},
    **{f"{prefix}iB/s": ("hbm_bytes", 2.0**power) for prefix, power in (("T", 40), ("G", 30), ("M", 20), ("K", 10))},
    **{f"{prefix}FLOP{ending}": ("flops", scale) for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6))
       for ending in ("S", "/s")},
    **dict.fromkeys(("tokens/s", "req/s", "items/s", "calls/s"), ("", 1.0)),
}  # fmt: skip
"""Units of a rate: the cost of a trial file that it counts ("" for none), and how much of it.  A rate of 250 GB/s is
kept as the seconds of 1 GB, 4 ms, with a cost of 1e9 bytes: so every page shows 250 GB/s again."""

UNIT = re.compile(
    "|".join(rf"(?<![\w/]){re.escape(unit)}(?![\w/])" for unit in sorted({*TIMES, *RATES}, key=len)[::-1])
)

PROGRAM_NAME = form(re.compile(r"[\w.-]{1,100}"), "letters, digits, _, . and -")

COMMAND = that(lambda line: isinstance(line, str) and line.strip(), 'a command, such as "./bench --size 4096"')

UNNAMED = "run"
"""The case of a row whose fields name none."""


class ReaderError(ValueError):
    """A reader cannot be used, or does not fit what it is given; the text says why, and what is allowed."""


@dataclasses.dataclass(frozen=True)
class Number:
    """Where a time or a rate stands.

    field: of it, or of several the first that has a value; a list of numbers is as many samples.  unit: such as "us",
    "GB/s".  unit_field: where the row says the unit itself.
    """

    field: Texts
    unit: str = ""
    unit_field: str = ""


@dataclasses.dataclass(frozen=True)
class Mark:
    """A field that says something of a row, unless its value is one of `right`.  message: the field with the reason."""

    field: str
    message: str = ""
    right: Texts = ("", "0", "n/a", "false", "no", "ok", "pass", "passed")


@dataclasses.dataclass(frozen=True)
class Series:
    """One of several numbers of a row, as a backend of its own."""

    backend: str
    time: Number | None = None
    rate: Number | None = None
    wrong: Mark | None = None


@dataclasses.dataclass(frozen=True)
class Reader:
    """How the rows of an output are found, and what they say.

    rows: "json" (objects at `path` of one document), "json lines", "csv" (under a line that fits `heading`, or the
    first), "columns" (the same, parted by spaces) or "pattern" (lines that fit it, its named groups are the fields).
    path: steps parted by dots, * for every entry, [key=value] for the entry that has it; a row also has the fields of
    the objects around it, as parent.NAME.  A column that a heading names twice is NAME and NAME#2.
    marks: texts by which the output of the tool is recognised.  strip: what is taken from the start of each line.
    facts: patterns for the other lines; each named group is a field of the rows below.  begin: pattern of a line
    at which another run begins.  case: fields that name a case.  backend: of the rows; backend_field: the field that
    says it.  series: several numbers of a row.  wide: every other column is a series, in the unit that its name has.
    leave_out: rows that are no measurement.  spare: rows that count only where their case has no other.
    ranks: fields to be multiplied; of a list it counts how many different entries it has.
    died: patterns that mark a run that broke off.  baselines: backends that the others are held against, as those of a
    library.
    """

    name: str
    rows: str
    path: str = ""
    heading: str = ""
    pattern: str = ""
    marks: Texts = ()
    strip: str = ""
    facts: Texts = ()
    begin: str = ""
    case: Texts = ()
    backend: str = ""
    backend_field: str = ""
    time: Number | None = None
    rate: Number | None = None
    series: tuple[Series, ...] = ()
    wide: bool = False
    wrong: Mark | None = None
    failed: Mark | None = None
    skipped: Mark | None = None
    leave_out: Mark | None = None
    spare: Mark | None = None
    ranks: Texts = ()
    died: Texts = ()
    baselines: Texts = ()

    @property
    def numbers(self) -> tuple[Series, ...]:
        """The numbers of a row."""
        return self.series or (Series(self.backend or self.name, self.time, self.rate, self.wrong),)


@dataclasses.dataclass(frozen=True)
class Program:
    """A benchmark program as it is declared: [[program]].  name: the operator of its trials.

    run, build: lines of bash, run at the top of a checkout with `pipefail`; build "": nothing is built.  reads: name of
    the reader of what it prints, "" to take the one that fits; reader: that reader.  output: a file that it writes,
    which is read in place of what it prints.  unit: of numbers whose unit nothing says.  baselines: backends that the
    others are held against.  paths: files and folders that can change its times, as git takes them; () for all.
    gpu: it needs one, so that no CPU machine runs it.
    """

    name: Annotated[str, PROGRAM_NAME]
    run: Annotated[str, COMMAND]
    build: str = ""
    reads: str = ""
    reader: Reader | None = None
    output: str = ""
    unit: str = ""
    baselines: Texts = ()
    paths: Texts = ()
    gpu: bool = False


@dataclasses.dataclass(frozen=True)
class Row:
    """A case as it was printed.  samples: in `unit`.  status: ok, skipped, failed or wrong; note: the reason."""

    case: str
    backend: str
    status: str
    samples: tuple[float, ...] = ()
    unit: str = ""
    ranks: int = 1
    note: str = ""
    spare: bool = False

    @property
    def value(self) -> float | None:
        """The median of the samples, None where there are none."""
        return statistics.median(self.samples) if self.samples else None

    @property
    def seconds(self) -> tuple[float, ...]:
        """The samples as seconds; of a rate, of the amount that its unit counts."""
        return tuple(one * TIMES[self.unit] if self.unit in TIMES else 1.0 / one for one in self.samples)

    @property
    def cost(self) -> dict[str, float]:
        """What a call does, by the names of a trial file's costs; {} where a unit says nothing of it."""
        name, amount = RATES.get(self.unit, ("", 0.0))
        return {name: amount} if name else {}


@dataclasses.dataclass(frozen=True)
class Reading:
    """rows: each case and backend once.  said: sentences on what was not read.  died: how the run broke off, or ""."""

    rows: tuple[Row, ...]
    said: tuple[str, ...] = ()
    died: str = ""


# ---- declarations ----------------------------------------------------------------------------------------------------


def tables(own: Sequence[Json] = ()) -> dict[str, Json]:
    """The tables of readers by name: ours, and those of a project, which take the place of ours with their names."""
    shipped = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))["reader"]
    return {str(table.get("name")): table for table in (*shipped, *own)}


def readers(own: Sequence[Json] = ()) -> dict[str, Reader]:
    """The readers by name.  own: [[reader]] tables of a project.  Raises ReaderError."""
    return {name: declared(table) for name, table in tables(own).items()}


def declared(table: Json) -> Reader:
    """The reader of a [[reader]] table.  Raises ReaderError, which names the key."""
    where = f"[[reader]] {table.get('name', '')}".strip()
    try:
        reader = built(Reader, table, where, closed=True)
        one_of(*ROWS)(reader.rows, f"{where}: rows")
        for name in ("heading", "pattern", "strip", "begin", "facts", "died"):
            value = getattr(reader, name)
            for pattern in (value,) if isinstance(value, str) else value:
                re.compile(pattern)
        if reader.rows == "pattern" and not reader.pattern:
            raise ReaderError(f'{where}: rows = "pattern" needs a pattern with named groups')
        for number in reader.numbers:
            _check_number(number, reader, where)
    except Unfit as error:
        raise ReaderError(str(error)) from None
    except re.error as error:
        raise ReaderError(f"{where}: {error.pattern!r} is no pattern of Python's re: {error}") from None
    return reader


def _check_number(number: Series, reader: Reader, where: str) -> None:
    if (number.time is None) + (number.rate is None) != (2 if reader.wide else 1):
        wanted = 'time = {field = "us", unit = "us"} or rate = {field = "busbw", unit = "GB/s"}'
        raise ReaderError(f"{where}: {number.backend} needs one of {wanted}, or wide = true")
    for known, one in ((TIMES, number.time), (RATES, number.rate)):
        if one and not one.unit_field and one.unit not in known:
            raise ReaderError(f"{where}: the unit {one.unit!r} is not one of {', '.join(known)}")


def fitting(text: str, known: Mapping[str, Reader]) -> Reader:
    """The reader whose marks all stand in an output.  Raises ReaderError where none does, or several."""
    fits = [one for one in known.values() if one.marks and all(mark in text for mark in one.marks)]
    most = max((len(one.marks) for one in fits), default=0)
    best = [one for one in fits if len(one.marks) == most]
    if len(best) == 1:
        return best[0]
    names = ", ".join(one.name for one in best or known.values())
    found = "several readers fit" if best else "no reader knows this output"
    raise ReaderError(f"{found}: name one with --reads ({names}), or declare your own as [[reader]] in ridgeline.toml")


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(text: str, reader: Reader, unit: str = "") -> Reading:
    """The rows of an output.  unit: of numbers whose unit nothing else says.  Raises ReaderError where there are none.

    A case that is printed several times has its numbers as samples; several units, ranks or a failed one among them
    make it a failed row.
    """
    output = _Output(reader, unit)
    rows = list(output.rows(text.removeprefix("\ufeff")))
    died = next((f"{where}: {line.strip()[:200]}" for line, where in output.endings), "")
    if not rows and not died:
        raise ReaderError(f"no row that {reader.name} writes is in it{output.hint()}")
    said = list(dict.fromkeys(output.said))
    said += [f"the run broke off {died}"] if died else []
    return Reading(tuple(_merged(rows)), tuple(said), died)


def _merged(rows: Sequence[Row]) -> Iterator[Row]:
    """Each case and backend once."""
    several: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        several.setdefault((row.case, row.backend), []).append(row)
    for all_of_it in several.values():
        those = [row for row in all_of_it if not row.spare] or all_of_it
        first, bad = those[0], next((row for row in those if row.status != "ok"), None)
        differs = [name for name in ("unit", "ranks") if len({getattr(row, name) for row in those}) > 1]
        if bad:
            yield bad
        elif differs:
            values = " and ".join(sorted({str(getattr(row, differs[0])) for row in those}))
            note = f"the case stands there {len(those)} times, with {differs[0]} {values}"
            yield dataclasses.replace(first, status="failed", samples=(), note=note)
        else:
            yield dataclasses.replace(first, samples=tuple(one for row in those for one in row.samples))


Fields = dict[str, Any]
"""A row before it is understood, by the names of its fields."""


class _Output:
    """An output while it is read.  endings: (line, where) of what says that the run broke off."""

    def __init__(self, reader: Reader, unit: str) -> None:
        self.reader, self.unit = reader, unit
        self.said: list[str] = []
        self.endings: list[tuple[str, str]] = []
        self._last = ""

    def hint(self) -> str:
        """What was expected, for an output without rows."""
        wanted = {"json": f"at {self.reader.path!r}", "csv": self.reader.heading, "columns": self.reader.heading}
        found = wanted.get(self.reader.rows) or self.reader.pattern
        return f" (rows are {self.reader.rows}{f': {found}' if found else ''}); was it interrupted?"

    def rows(self, text: str) -> Iterator[Row]:
        """All rows, in order, a case as often as it is there."""
        of_kind = {"json": self._of_json, "json lines": self._of_json_lines}.get(self.reader.rows, self._of_lines)
        for fields in of_kind(text):
            if self.reader.leave_out and _marked(fields, self.reader.leave_out):
                continue
            for row in self._understood(fields):
                self._last = row.case
                yield row

    # ---- finding rows ------------------------------------------------------------------------------------------------

    def _of_json(self, text: str) -> Iterator[Fields]:
        try:
            data = json.loads(text[min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=0) :])
        except (ValueError, RecursionError) as error:
            self._ends_of(text)
            raise ReaderError(f"is no sound JSON, was its writer interrupted? ({error})") from None
        facts = data if isinstance(data, dict) else {}
        for found, around in _at(data, self.reader.path, {}):
            for one in found if isinstance(found, list) else [found]:
                if isinstance(one, dict):
                    yield {**facts, **around, **one}
                else:
                    yield {"": f"{json.dumps(one)[:60]} stands in its place"}

    def _of_json_lines(self, text: str) -> Iterator[Fields]:
        for number, line in enumerate(text.splitlines(), 1):
            if not line.lstrip().startswith("{"):
                self._heard(line, {})
                continue
            try:
                yield from (
                    found for found, _ in _at(json.loads(line), self.reader.path, {}) if isinstance(found, dict)
                )
            except (ValueError, RecursionError) as error:
                self.said.append(f"line {number} is no sound JSON ({error})")

    def _of_lines(self, text: str) -> Iterator[Fields]:
        """Rows of a table or of a pattern, with what lines before them say."""
        reader = self.reader
        facts: Fields = {}
        heading, columns = "", list[str]()
        for raw in text.splitlines():
            line = re.sub(f"^(?:{reader.strip})", "", raw) if reader.strip else raw
            if reader.begin and re.search(reader.begin, line) and columns:
                facts, columns = {}, []
            if reader.rows == "pattern":
                if found := re.search(reader.pattern, line):
                    yield {**facts, **{k: v for k, v in found.groupdict().items() if v is not None}}
                    continue
            elif self._is_heading(line, columns):
                heading, columns = line.replace("#", " ", 1), _numbered(self._cells(line.lstrip("# ")))
                continue
            elif columns and (fields := self._cells_by_column(line, heading, columns)):
                yield {**facts, **fields}
                continue
            facts |= self._heard(line, facts)

    def _is_heading(self, line: str, columns: Sequence[str]) -> bool:
        if self.reader.heading:
            return bool(re.search(self.reader.heading, line))
        return not columns and bool(line.strip())

    def _cells(self, line: str) -> list[str]:
        if self.reader.rows == "columns":
            return line.split()
        delimiter = next((one for one in ";\t" if one in line and "," not in line), ",")
        return [
            cell.strip() for cell in next(csv.reader([line.strip()], delimiter=delimiter, skipinitialspace=True), [])
        ]

    def _cells_by_column(self, line: str, heading: str, columns: Sequence[str]) -> Fields:
        """The cells of a row by column; {} for a line that is none.

        Columns parted by spaces may be blank: a cell is of the column whose right end is nearest to its own.
        """
        cells = [] if line.lstrip().startswith("#") else self._cells(line)
        if self.reader.rows == "csv":
            torn = {"": f"{len(cells)} of {len(columns)} cells"} if len(cells) < len(columns) else {}
            return {**dict(zip(columns, cells, strict=False)), **torn} if len(cells) > 1 else {}
        if len(cells) == len(columns):
            return dict(zip(columns, cells, strict=True))
        if len(cells) < 2 or not _is_number(cells[0]):
            return {}
        ends = [found.end() for found in re.finditer(r"\S+", heading)]
        fields: Fields = {}
        for found in re.finditer(r"\S+", line):
            name = columns[min(range(len(ends)), key=lambda at: abs(ends[at] - found.end()))]
            fields[name] = f"{fields[name]} {found[0]}" if name in fields else found[0]
        return fields

    def _heard(self, line: str, facts: Fields) -> Fields:
        """What a line that is no row says: further facts, or that the run ended."""
        self._ends_of(line)
        found: Fields = {}
        for pattern in self.reader.facts:
            if match := re.search(pattern, line):
                for name, value in match.groupdict().items():
                    if value is not None:  # what is found several times is a list: the ranks of a run
                        found[name] = [*facts[name], value] if isinstance(facts.get(name), list) else [value]
        return found

    def _ends_of(self, text: str) -> None:
        for pattern in self.reader.died:
            if match := re.search(pattern, text):
                where = f"after {self._last}" if self._last else "before its first row"
                self.endings.append((match[0] if "\n" in text else text, where))

    # ---- understanding a row -----------------------------------------------------------------------------------------

    def _understood(self, fields: Fields) -> Iterator[Row]:
        reader = self.reader
        ranks = _ranks(fields, reader.ranks)
        case = self._case({**fields, "ranks": fields.get("ranks", ranks)})
        spare = bool(reader.spare and _marked(fields, reader.spare))
        numbers = list(self._wide(fields) if reader.wide else reader.numbers)
        there = [one for one in numbers if self._value(fields, one)[1] is not None or self._is_null(fields, one)]
        for series in there or numbers[:1]:  # of several numbers a row may have some
            named = _text(_get(fields, reader.backend_field)) if reader.backend_field else ""
            row = Row(case, name_of(named or series.backend), "failed", ranks=ranks, spare=spare)
            torn = fields.get("", "")
            if reader.skipped and (why := _marked(fields, reader.skipped)):
                yield dataclasses.replace(row, status="skipped", note=why)
            elif reader.failed and (why := _marked(fields, reader.failed)):
                yield dataclasses.replace(row, note=why)
            elif (wrong := series.wrong or reader.wrong) and (why := _marked(fields, wrong)):
                yield dataclasses.replace(row, status="wrong", note=why)
            elif torn:
                yield dataclasses.replace(row, note=f"the row is torn: {_text(torn)}")
            else:
                yield self._timed(row, fields, series)

    def _timed(self, row: Row, fields: Fields, series: Series) -> Row:
        """The row with its samples; failed where they are no times."""
        number = _number(series)
        name, value = self._value(fields, series)
        said = _text(_get(fields, number.unit_field)) if number.unit_field else number.unit
        unit = next(reversed(UNIT.findall(said)), "") or self.unit
        if unit not in (TIMES if series.time and not number.unit_field else {**TIMES, **RATES}):
            known = ", ".join({**TIMES, **RATES})
            return dataclasses.replace(row, note=f"the unit of {name} is {said!r}: give one with --unit ({known})")
        samples = [_float(one) for one in (value if isinstance(value, list) else [value])]
        if wrong := [one for one in samples if not (math.isfinite(one) and one > 0)] or not samples:
            shown = "empty" if wrong is True else f"{value!r}"[:60]
            what = "time" if unit in TIMES else "rate"
            said = f"{name} is missing: the row may be torn" if value is None else f"{name} is {shown}, no {what}"
            return dataclasses.replace(row, note=said)
        return dataclasses.replace(row, status="ok", samples=tuple(samples), unit=unit)

    def _value(self, fields: Fields, series: Series) -> tuple[str, Any]:
        """The field of a number that has a value, and the value; None where none has."""
        names = _number(series).field
        values = ((name, _get(fields, name)) for name in names)
        return next(((name, one) for name, one in values if one not in (None, "", [])), (names[0], None))

    def _is_null(self, fields: Fields, series: Series) -> bool:
        """Whether a row has null in place of a number, as some writers of JSON put it for NaN."""
        held = [value for name in _number(series).field for value, _ in _at(fields, name, {})]
        return bool(held) and all(value in (None, []) for value in held)

    def _case(self, fields: Fields) -> str:
        """ "m128_n128_f16_r": numbers with the name of their field, where there are several."""
        names = self.reader.case or tuple(fields)[:1]
        parts = []
        for name in names:
            value = _text(_get(fields, name))
            if value:
                parts.append(f"{name.rpartition('.')[2]}{value}" if _is_number(value) and len(names) > 1 else value)
        return name_of("_".join(parts)) or UNNAMED

    def _wide(self, fields: Fields) -> Iterator[Series]:
        """Every column that is not part of the case, as a series: "triton (GB/s)" is the backend triton in GB/s."""
        case = self.reader.case or tuple(fields)[:1]
        for name in fields:
            if name and name not in case:
                unit = next(reversed(UNIT.findall(name)), self.unit)
                backend = re.sub(r"\s*[\[(][^\])]*[\])]\s*$", "", name) or name
                number = Number((name,), unit)
                yield Series(backend, number if unit in TIMES else None, None if unit in TIMES else number)


def _number(series: Series) -> Number:
    found = series.time or series.rate
    assert found is not None  # _check_number
    return found


def _at(value: Any, path: str, around: Fields) -> Iterator[tuple[Any, Fields]]:
    """What stands at a path, with the fields of the objects around it."""
    step, _, rest = _step(path)
    if not step:
        yield value, around
    elif step == "*":
        for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            own = {f"parent.{key}": held for key, held in one.items()} if isinstance(one, dict) and rest else {}
            yield from _at(one, rest, {**around, **own})
    elif step.startswith("["):
        key, _, wanted = step[1:-1].partition("=")
        for one in value if isinstance(value, list) else ():
            if isinstance(one, dict) and str(one.get(key)) == wanted:
                yield from _at(one, rest, around)
    elif isinstance(value, dict) and step in value:
        yield from _at(value[step], rest, around)


@functools.lru_cache(maxsize=1024)
def _step(path: str) -> tuple[str, str, str]:
    """The first step of a path, and the rest."""
    found = re.match(r"(\[[^\]]*\]|[^.\[]+)\.?(.*)", path, re.DOTALL)
    return (found[1], "", found[2]) if found else ("", "", "")


def _get(fields: Fields, name: str) -> Any:
    """A field by its name, else by its path; None if there is none."""
    return fields[name] if name in fields else next((value for value, _ in _at(fields, name, {})), None)


def _marked(fields: Fields, mark: Mark) -> str:
    """What a field says against a row, "" if nothing."""
    value = _get(fields, mark.field)
    for one in value if isinstance(value, list) else [value]:
        if one is None or one is False or _text(one).lower() in map(str.lower, mark.right) or _float(one) == 0:
            continue
        message = _text(_get(fields, mark.message)) if mark.message else ""
        return message or f"{mark.field} is {_text(one)}"
    return ""


def _ranks(fields: Fields, names: Sequence[str]) -> int:
    """The product of fields; of a list how many different entries it has."""
    product = 1
    for name in names:
        held = [value for value, _ in _at(fields, name, {})] if "*" in name else _get(fields, name)
        count = len({json.dumps(one) for one in held}) if isinstance(held, list) else _float(held)
        product *= int(count) if math.isfinite(count) and count >= 1 else 1
    return product


def _numbered(names: Iterable[str]) -> list[str]:
    """Names of columns, each once: time, time#2."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return found


def _text(value: Any) -> str:
    if isinstance(value, list):
        value = value[-1] if value else ""
    if isinstance(value, dict):
        return ",".join(f"{key}={_text(one)}" for key, one in value.items())
    return "" if value is None else str(value).strip()


def _float(value: Any) -> float:
    """A number, or a text that is one; NaN for all else."""
    try:
        return math.nan if isinstance(value, bool) or value is None else float(str(value).replace("_", "x"))
    except ValueError:
        return math.nan


def _is_number(text: str) -> bool:
    return math.isfinite(_float(text))


def name_of(text: str) -> str:
    """A text as a name: printable, on one line, U+2215 for the slash that joins names here, 200 characters."""
    line = " ".join(UNPRINTABLE.sub("?", text.replace("/", "\N{DIVISION SLASH}")).split())
    return line[:200].strip()
