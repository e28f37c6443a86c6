"""What a value of JSON or TOML may be, as small checks that are put together into the description of a format.

A check takes a value and the name of its place, and raises Unfit if the value does not fit.  Standard library only.
Files that people write (policies, pools) are `closed`: a key that is not known is a typing error there.
Where the description is a dataclass already, `built` makes one of the value and checks it by its annotations.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

Json = Mapping[str, Any]
"""A JSON object that is read."""

JsonObject = dict[str, Any]
"""A JSON object that is made, or that nobody else has."""

DEEPEST, LONGEST_TEXT, LONGEST_NAME = 20, 20_000, 1_000
"""Levels of nesting; characters of a text (a traceback has at most 8,000) and of a name."""

LARGEST = 2**63 - 1
"""Largest whole number: what Parquet, pandas and asv's database hold."""

UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
UNPRINTABLE_BUT_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters and lone surrogates; the second lets line breaks and tabs pass."""


class Unfit(ValueError):
    """A value that the format does not allow; the text names the place, the value and what is allowed."""

    def __init__(self, where: str, value: object, allowed: str) -> None:
        super().__init__(f"{where or 'the line'} is {shown(value)}; allowed: {allowed}")


class UnknownKey(Unfit):
    """A key that a closed object does not have; the text names the known ones."""

    def __init__(self, where: str, key: object, known: Iterable[str]) -> None:
        text = f"unknown key {str(key)[:LONGEST_SHOWN]!r}; known: {', '.join(known)}"
        ValueError.__init__(self, f"{where}: {text}" if where else text)


def inside(where: str, key: str) -> str:
    """The place of a key's value within that of its object."""
    return f"{where}.{key}" if where else key


def key_of(where: str) -> str:
    """The place of a key itself."""
    return f"a key of {where or 'the line'}"


MISSING = object()
"""Stands for the value of a key that is not there."""


LONGEST_SHOWN = 60
"""Characters of a value in a message."""


def shown(value: object, most: int = LONGEST_SHOWN) -> str:
    """A value for a message: JSON in ASCII, cut to `most` characters."""
    if value is MISSING:
        return "missing"
    if isinstance(value, str):
        value = value[:most]
    try:
        written = json.dumps(value, default=str)  # a date of TOML
    except (TypeError, ValueError, RecursionError):
        written = type(value).__name__
    return written if len(written) <= most else written[: most - 3] + "..."


def bounded(value: Any, where: str = "", depth: int = 0) -> None:
    """The limits that hold for every value, known or not: depth, length and characters of texts, finite numbers."""
    if depth > DEEPEST:
        raise Unfit(where, "...", f"at most {DEEPEST} levels of nesting")
    if isinstance(value, dict):
        for key, one in value.items():
            name(key, key_of(where))
            bounded(one, inside(where, key), depth + 1)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            bounded(one, f"{where}[{index}]", depth + 1)
    elif isinstance(value, str):
        _any_text(value, where)
    elif value is not None and not abs(value) <= LARGEST:  # NaN is not
        raise Unfit(where, str(value)[:20], f"finite numbers up to {LARGEST}")


def clean(value: Any) -> Any:
    """The same JSON value without NaN and Infinity, which are not JSON, and with printable texts of bounded length."""
    return finite(value, lambda text: UNPRINTABLE_BUT_LINES.sub("\ufffd", text)[:LONGEST_TEXT])


def finite(value: Any, of_text: Callable[[str], str] = str) -> Any:
    """The same JSON value without NaN and Infinity, which are not JSON.  of_text: what a text becomes."""
    if isinstance(value, str):
        return of_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {of_text(str(key)): finite(item, of_text) for key, item in value.items()}
    return [finite(item, of_text) for item in value] if isinstance(value, (list, tuple)) else value


def some_of(names: Sequence[str], most: int) -> str:
    """The first of some names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def digest_of(value: Any, digits: int = 16) -> str:
    """Hexadecimal digits that are equal for equal JSON values."""
    return text_digest(json.dumps(value, sort_keys=True), digits)


def text_digest(text: str, digits: int = 16) -> str:
    """The first hexadecimal digits of the text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


Check = Callable[[Any, str], None]
"""Raises Unfit for a value (first argument) at a place (second) that does not fit."""


def that(fits: Callable[[Any], Any], allowed: str) -> Check:
    """What passes a test of its own.  allowed: in words."""

    def check(value: Any, where: str) -> None:
        if not fits(value):
            raise Unfit(where, value, allowed)

    return check


def form(pattern: re.Pattern[str], allowed: str, *, empty: bool = False) -> Check:
    """A text of a form.  allowed: in words.  empty: the empty text is as good as none."""
    return that(lambda value: isinstance(value, str) and (pattern.fullmatch(value) or (empty and not value)), allowed)


def text(most: int = LONGEST_TEXT, *, least: int = 0, lines: bool = True) -> Check:
    """Characters without surrogates and control characters (a line break and a tab are allowed where `lines`)."""
    forbidden = UNPRINTABLE_BUT_LINES if lines else UNPRINTABLE

    def fits(value: Any, where: str) -> None:
        if not isinstance(value, str) or not least <= len(value) <= most:
            raise Unfit(where, value, f"text of {least} to {most} characters")
        if not (value.isascii() and value.isprintable()) and forbidden.search(value):
            raise Unfit(where, value, "text without control characters and lone surrogates")

    return fits


def whole(least: int = 0, most: int = LARGEST) -> Check:
    """A whole number; True is none."""
    return that(lambda value: type(value) is int and least <= value <= most, f"a whole number from {least} to {most}")


def number(least: float = 0.0, most: float = 1e18) -> Check:
    """A finite number."""
    allowed = f"a number from {least:g} to {most:g}"
    return that(lambda value: type(value) in (int, float) and least <= value <= most, allowed)


def numbers(least: float, most: float, *, fewest: int = 0) -> Check:
    """A list of numbers; whole lists are looked at at once, because these are nearly all of a file."""

    def fits(value: Any, where: str) -> None:
        if type(value) is not list or len(value) < fewest:
            raise Unfit(where, value, f"a list of at least {fewest} numbers")
        in_range = set(map(type, value)) <= {int, float} and (
            not value or (least <= min(value) and max(value) <= most and not math.isnan(sum(value)))
        )
        if in_range:
            return
        for index, one in enumerate(value):
            number(least, most)(one, f"{where}[{index}]")

    return fits


def one_of(*allowed: Any) -> Check:
    """One of a few values."""

    texts, known = ", ".join(map(str, allowed)), frozenset(allowed)
    return that(lambda value: isinstance(value, (str, int)) and value in known and not isinstance(value, bool), texts)


flag = that(lambda value: type(value) is bool, "true or false")


def anything(value: Any, where: str) -> None:
    """Whatever `bounded` allows."""


def maybe(check: Check) -> Check:
    """null, or what `check` allows."""

    def fits(value: Any, where: str) -> None:
        if value is not None:
            check(value, where)

    return fits


def items(check: Check, some: str = "") -> Check:
    """A list.  some: what is allowed in words, where it is not to be empty."""

    def fits(value: Any, where: str) -> None:
        if type(value) is not list or (some and not value):
            raise Unfit(where, value, some or "a list")
        for index, one in enumerate(value):
            check(one, f"{where}[{index}]")

    return fits


def table(key: Check, check: Check) -> Check:
    """An object whose keys are data."""

    def fits(value: Any, where: str) -> None:
        if type(value) is not dict:
            raise Unfit(where, value, "an object")
        for own, one in value.items():
            key(own, key_of(where))
            check(one, inside(where, own))

    return fits


def record(
    required: Mapping[str, Check], optional: Mapping[str, Check], *, closed: bool = False, rest: Check | None = None
) -> Check:
    """An object with known keys; others are left to a later version.

    closed: others are refused, and of one that is missing it is said what it is to hold.  rest: checks an
    object of the other keys.
    """
    known = {**required, **optional}

    def fits(value: Any, where: str) -> None:
        if type(value) is not dict:
            raise Unfit(where, value, "a table" if closed else "an object")
        lacking = next((field for field in required if field not in value), None)
        if lacking and not closed:
            raise Unfit(inside(where, lacking), None, "a value; it is missing")
        others = {field: one for field, one in value.items() if field not in known}
        if closed and others:
            raise UnknownKey(where, next(iter(others)), (*optional, *required))
        for field in (field for field in value if field in known):
            known[field](value[field], inside(where, field))
        if rest and others:
            rest(others, where)
        if lacking:
            required[lacking](MISSING, inside(where, lacking))
            raise Unfit(inside(where, lacking), MISSING, "a value")

    return fits


def with_tuples(values: Json) -> JsonObject:
    """The values of a checked object with its lists as tuples, for the fields of a frozen value."""
    return {key: tuple(one) if isinstance(one, list) else one for key, one in values.items()}


name = text(LONGEST_NAME, least=1, lines=False)
"""1 to LONGEST_NAME printable characters on one line."""

_any_text = text()


# ---- values of dataclasses -------------------------------------------------------------------------------------------


Made = TypeVar("Made")

PLAIN: Mapping[Any, Check] = {
    str: that(lambda value: isinstance(value, str), "text"),
    int: whole(-LARGEST),
    float: number(-1e300, 1e300),
    bool: flag,
    Any: anything,
}
"""What a value of a plain annotation may be; Annotated[int, whole(1)] says more."""


@dataclasses.dataclass(frozen=True)
class Into:
    """In an Annotated, behind its checks: what is made of the value."""

    made: Callable[[Any], Any]


Texts = typing.Annotated[
    tuple[str, ...],
    that(lambda value: isinstance(value, (str, list)) and all(isinstance(one, str) for one in value), "texts"),
    Into(lambda value: (value,) if isinstance(value, str) else tuple(value)),
]
"""A list of texts, where one text may stand for a list."""


def built(kind: type[Made], value: Any, where: str = "", *, closed: bool = False) -> Made:
    """A value of JSON as one of a type: a dataclass, which may hold others, tuples, mappings, enumerations, X | None.

    Unfit where a value is not what its annotation says, or a field without a default is missing.  A field that the
    class does not have is left to a later version; closed: it is an UnknownKey.
    """
    wanted: Any = kind
    return typing.cast(Made, _maker(wanted, closed)(value, where))


Maker = Callable[[Any, str], Any]
"""What is made of a value (first argument) at a place (second); Unfit."""


@functools.cache
def _maker(kind: Any, closed: bool) -> Maker:
    """Of a type: what its annotation says is read once, and then stands for millions of values."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _of_fields(kind, closed)
    if origin is tuple:
        return _of_items(_maker(parts[0], closed))
    if origin is Mapping:
        return _of_table(_maker(parts[0], closed), _maker(parts[1], closed))
    if origin in (typing.Union, types.UnionType):
        first = _maker(parts[0], closed)
        return lambda value, where: value if type(value) in parts else first(value, where)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _passed(one_of(*kind), Into(kind))
    if origin is typing.Literal:
        return _passed(one_of(*parts))
    return _passed(*(parts[1:] if origin is typing.Annotated else [PLAIN[kind]]))


def _passed(*steps: Check | Into) -> Maker:
    def make(value: Any, where: str) -> Any:
        for step in steps:
            if isinstance(step, Into):
                value = step.made(value)
            else:
                step(value, where)
        return value

    return make


def _of_items(make: Maker) -> Maker:
    check = items(anything)

    def made(value: Any, where: str) -> tuple[Any, ...]:
        check(value, where)
        return tuple(make(one, f"{where}[{index}]") for index, one in enumerate(value))

    return made


def _of_table(key: Maker, make: Maker) -> Maker:
    check = table(anything, anything)

    def made(value: Any, where: str) -> dict[Any, Any]:
        check(value, where)
        return {key(own, key_of(where)): make(one, inside(where, own)) for own, one in value.items()}

    return made


def _of_fields(kind: Any, closed: bool) -> Maker:
    fields, none = [field for field in dataclasses.fields(kind) if field.init], dataclasses.MISSING
    needed = [field.name for field in fields if field.default is field.default_factory is none]
    others = [field.name for field in fields if field.name not in needed]
    check = record(dict.fromkeys(needed, anything), dict.fromkeys(others, anything), closed=closed)
    always = frozenset(needed)

    @functools.cache
    def makers() -> dict[str, Maker]:
        hints = typing.get_type_hints(kind, include_extras=True)
        return {field: _maker(hint, closed) for field, hint in hints.items()}

    def made(value: Any, where: str) -> Any:
        if closed or type(value) is not dict or not always <= value.keys():
            check(value, where)
        own = makers()
        return kind(**{field: own[field](one, inside(where, field)) for field, one in value.items() if field in own})

    return made
