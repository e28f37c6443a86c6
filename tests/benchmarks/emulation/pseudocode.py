"""AMD's pseudocode of an instruction, executed as it is written: one lane at a time, exact, slow and obvious.

The text is that of the ISA documents (`tinygrad.runtime.autogen.amd.cdna.str_pcode`).  A value is a kind (U unsigned,
I signed, B bits, F float, BF bfloat, FP8, BF8), a width and its bits; every floating-point result is computed with
rational numbers and rounded once by `encoded`, so nothing here is shared with numpy or with the executor.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

TOKEN = re.compile(
    r"\s+|//[^\n]*|"
    r"(?P<cast>\d+'(?:BF|[UIFB])(?=[\s(\[;]))|"
    r"(?P<sized>\d+'(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)[UIFB]?)|"
    r"(?P<number>0x[0-9a-fA-F]+(?:ULL|LL|U|L)?|\d+\.\d+F?|\d+(?:ULL|LL|U|F|L)?)|"
    r"(?P<name>[A-Za-z_]\w*)|"
    r"(?P<sign>\*\*|<<|>>|<>|<=|>=|==|!=|&&|\|\||\+=|-=|\+:|[-+*/&|^~!<>=?:;,.(){}\[\]])"
)
VIEW = re.compile(r"(?P<kind>bf|fp|[uifb])(?P<width>\d+)$")
FORMATS = {("F", 16): (5, 10), ("F", 32): (8, 23), ("F", 64): (11, 52), ("BF", 16): (8, 7)}
"""Kind and width -> bits of exponent and of fraction."""

SMALL = {"gfx942": {"FP8": (4, 3, 8), "BF8": (5, 2, 16)}, "gfx950": {"FP8": (4, 3, 7), "BF8": (5, 2, 15)}}
"""fp8 and bf8: bits of exponent, of fraction, bias.  gfx942 has the FNUZ ones (no infinity, no -0, the one NaN is
0x80), gfx950 the OCP ones (e4m3: no infinity, NaN is 0x7f and 0xff; e5m2 as IEEE)."""


class Unreadable(ValueError):
    """What this interpreter does not read."""


@dataclass(frozen=True)
class Value:
    """bits is an int of the width; kind X is an exact rational number (a power of two), not yet rounded."""

    kind: str
    width: int
    bits: Any

    @property
    def number(self) -> int:
        """The integer it is."""
        if self.kind == "I" and self.bits >> (self.width - 1) & 1:
            return int(self.bits) - (1 << self.width)
        return int(self.bits)

    @property
    def is_float(self) -> bool:
        return self.kind in ("F", "BF", "X")


class SignedZero(Value):
    """+0.0 or -0.0 as it is written: a comparison with it looks at the sign."""


def integer(kind: str, width: int, number: int) -> Value:
    return Value(kind, width, number & (1 << width) - 1)


def decoded(value: Value) -> tuple[str, int, Fraction]:
    """("nan" | "inf" | "number", sign, magnitude)."""
    if value.kind == "X":
        return "number", 0, value.bits
    exponent_bits, fraction_bits = FORMATS[value.kind, value.width]
    sign = value.bits >> (value.width - 1) & 1
    exponent = value.bits >> fraction_bits & (1 << exponent_bits) - 1
    fraction = value.bits & (1 << fraction_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    if exponent == (1 << exponent_bits) - 1:
        return ("nan" if fraction else "inf"), sign, Fraction(0)
    if exponent == 0:
        return "number", sign, Fraction(fraction) * Fraction(2) ** (1 - bias - fraction_bits)
    return "number", sign, Fraction(fraction + (1 << fraction_bits)) * Fraction(2) ** (exponent - bias - fraction_bits)


def _rounded(magnitude: Fraction, exponent_bits: int, fraction_bits: int, bias: int, toward_zero: bool) -> int:
    """Exponent and fraction of a positive number as bits, to nearest even or toward zero; may carry past the top."""
    power = (
        math.frexp(float(magnitude))[1] - 1 if Fraction(1, 10**300) < magnitude < 10**300 else _floor_log2(magnitude)
    )
    if Fraction(2) ** power > magnitude:
        power -= 1
    exponent = max(power, 1 - bias)
    units = magnitude / Fraction(2) ** (exponent - fraction_bits)
    whole, rest = units.numerator // units.denominator, units - units.numerator // units.denominator
    if not toward_zero and (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1)):
        whole += 1
    if whole < 1 << fraction_bits:
        return whole
    return (exponent + bias - 1 << fraction_bits) + whole


def _floor_log2(magnitude: Fraction) -> int:
    power = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return power if Fraction(2) ** power <= magnitude else power - 1


def encoded(sign: int, magnitude: Fraction, kind: str, width: int, toward_zero: bool = False) -> Value:
    """A number rounded to a format: the only place where anything is rounded."""
    exponent_bits, fraction_bits = FORMATS[kind, width]
    top = (1 << exponent_bits) - 1 << fraction_bits
    bias = (1 << exponent_bits - 1) - 1
    bits = _rounded(magnitude, exponent_bits, fraction_bits, bias, toward_zero) if magnitude else 0
    if bits >= top:
        bits = top - 1 if toward_zero else top
    return Value(kind, width, sign << (width - 1) | bits)


def nan(kind: str, width: int) -> Value:
    exponent_bits, fraction_bits = FORMATS[kind, width]
    return Value(kind, width, ((1 << exponent_bits + 1) - 1) << (fraction_bits - 1))


def infinity(sign: int, kind: str, width: int) -> Value:
    exponent_bits, fraction_bits = FORMATS[kind, width]
    return Value(kind, width, sign << (width - 1) | ((1 << exponent_bits) - 1) << fraction_bits)


def converted(value: Value, kind: str, width: int, toward_zero: bool = False) -> Value:
    """A float in another format; a NaN keeps the top of its payload, and stays signalling."""
    if (value.kind, value.width) == (kind, width):
        return value
    what, sign, magnitude = decoded(value)
    if what == "nan":
        have, want = FORMATS[value.kind, value.width][1], FORMATS[kind, width][1]
        payload = value.bits & (1 << have) - 1
        payload = payload << (want - have) if want > have else payload >> (have - want)
        return Value(kind, width, infinity(sign, kind, width).bits | (payload or 1))
    return infinity(sign, kind, width) if what == "inf" else encoded(sign, magnitude, kind, width, toward_zero)


def total(parts: list[tuple[str, int, Fraction]], kind: str, width: int) -> Value:
    """The sum of decoded numbers, rounded once."""
    if any(what == "nan" for what, _, _ in parts):
        return nan(kind, width)
    endless = {sign for what, sign, _ in parts if what == "inf"}
    if endless:
        return nan(kind, width) if len(endless) == 2 else infinity(endless.pop(), kind, width)
    result = sum((-magnitude if sign else magnitude for _, sign, magnitude in parts), Fraction(0))
    zero_sign = int(all(sign for _, sign, _ in parts))
    return encoded(int(result < 0) if result else zero_sign, abs(result), kind, width)


def times(a: Value, b: Value) -> tuple[str, int, Fraction]:
    """The exact product."""
    (what_a, sign_a, x), (what_b, sign_b, y) = decoded(a), decoded(b)
    sign = sign_a ^ sign_b
    if "nan" in (what_a, what_b):
        return "nan", 0, Fraction(0)
    if "inf" in (what_a, what_b):
        return ("inf" if (what_a == "inf" or x) and (what_b == "inf" or y) else "nan"), sign, Fraction(0)
    return "number", sign, x * y


def quotient(a: Value, b: Value, kind: str, width: int) -> Value:
    (what_a, sign_a, x), (what_b, sign_b, y) = decoded(a), decoded(b)
    sign = sign_a ^ sign_b
    if "nan" in (what_a, what_b) or what_a == what_b == "inf" or (what_a == what_b == "number" and not x and not y):
        return nan(kind, width)
    if what_a == "inf" or (what_b == "number" and not y):
        return infinity(sign, kind, width)
    return encoded(sign, Fraction(0) if what_b == "inf" else x / y, kind, width)


def _wider(a: Value, b: Value) -> tuple[str, int]:
    """Format of the result of two floats."""
    known = [one for one in (a, b) if one.kind != "X"]
    best = max(known, key=lambda one: one.width)
    return best.kind, best.width


def _promoted(a: Value, b: Value) -> tuple[str, int]:
    """Type of the result of two integers, as in C: at least 32 bits, unsigned if either is at that width."""
    width = max(32, a.width, b.width)
    unsigned = any(one.kind != "I" and one.width == width for one in (a, b))
    return ("U" if unsigned or "I" not in (a.kind, b.kind) else "I"), width


def compared(sign: str, a: Value, b: Value) -> Value:
    if b.kind == "DENORM":
        what, _, magnitude = decoded(a)
        return integer("U", 1, what == "number" and 0 < magnitude < Fraction(2) ** (-126 if b.width == 32 else -1022))
    if isinstance(b, SignedZero):
        return integer("U", 1, decoded(a)[1:] == decoded(b)[1:] and decoded(a)[0] == "number")
    if a.is_float or b.is_float:
        if not (a.is_float and b.is_float):
            raise Unreadable("a float compared to an integer")
        sides = []
        for what, negative, magnitude in (decoded(a), decoded(b)):
            if what == "nan":
                return integer("U", 1, sign == "!=")
            sides.append((-1 if negative else 1) * (Fraction(10) ** 400 if what == "inf" else magnitude))
        left, right = sides
    else:
        _, width = _promoted(a, b)
        left, right = a.number, b.number
        if "I" in (a.kind, b.kind) and _promoted(a, b)[0] == "U":
            left, right = left & (1 << width) - 1, right & (1 << width) - 1
    result = {
        "==": left == right,
        "!=": left != right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[sign]
    return integer("U", 1, result)


def arithmetic(sign: str, a: Value, b: Value) -> Value:
    """Of two values: floats are rounded to the wider format, integers wrap."""
    if sign == "**":
        power = b.number
        return Value("X", 0, Fraction(2) ** max(-5000, min(5000, power)))
    if sign in ("<<", ">>"):
        kind, width = ("I" if a.kind == "I" else "U"), max(32, a.width)
        places = min(b.number, 4096)
        return integer(kind, width, a.number << places if sign == "<<" else a.number >> places)
    if a.is_float or b.is_float:
        kind, width = _wider(a, b)
        if sign == "*":
            return total([times(a, b)], kind, width)
        if sign == "/":
            return quotient(a, b, kind, width)
        return total([decoded(a), decoded(b if sign == "+" else negated(b))], kind, width)
    kind, width = _promoted(a, b)
    x, y = a.number, b.number
    result = {"+": x + y, "-": x - y, "*": x * y, "&": x & y, "|": x | y, "^": x ^ y}[sign]
    return integer(kind, width, result)


def negated(value: Value) -> Value:
    if value.kind == "X":
        raise Unreadable("a negative power")
    if value.is_float:
        return Value(value.kind, value.width, value.bits ^ 1 << (value.width - 1))
    return integer(value.kind, value.width, -value.number)


Scope = dict[str, Any]
Expression = Callable[[Scope], Value]
LEVELS = [
    ["||"],
    ["&&"],
    ["|"],
    ["^"],
    ["&"],
    ["==", "!=", "<>"],
    ["<", "<=", ">", ">="],
    ["<<", ">>"],
    ["+", "-"],
    ["*", "/"],
    ["**"],
]


class Break(Exception):
    pass


class Return(Exception):
    def __init__(self, value: Value) -> None:
        self.value = value


class Program:
    """Pseudocode, read once; `run` executes it on a scope: names -> values, lists of them, or functions."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(text):
            found = TOKEN.match(text, place)
            if not found:
                raise Unreadable(f"{text[place : place + 20]!r}")
            if found.lastgroup:
                self.tokens.append((found.lastgroup, found.group()))
            place = found.end()
        self.tokens.append(("end", ""))
        self.at = 0
        self.body = self._block(("",))

    def run(self, scope: Scope) -> None:
        for statement in self.body:
            statement(scope)

    # Reading.

    def _peek(self) -> str:
        return self.tokens[self.at][1]

    def _take(self, *expected: str) -> str:
        text = self.tokens[self.at][1]
        if expected and text not in expected:
            raise Unreadable(f"{text!r} where {expected} is expected")
        self.at += 1
        return text

    def _if(self, *texts: str) -> bool:
        if self._peek() in texts:
            self.at += 1
            return True
        return False

    def _block(self, ends: tuple[str, ...]) -> list[Callable[[Scope], None]]:
        statements = []
        while self._peek() not in ends:
            if not self._if(";"):
                statements.append(self._statement())
        return statements

    def _statement(self) -> Callable[[Scope], None]:
        word = self._peek()
        if word == "if":
            return self._choice()
        if word == "for":
            return self._loop()
        if word == "declare":
            return self._declaration()
        if self._if("break"):
            return _broken
        if self._if("return"):
            value = self._expression()

            def leave(scope: Scope) -> None:
                raise Return(value(scope))

            return leave
        if self.tokens[self.at + 1][1] == "=" and self.tokens[self.at + 2][1] == "lambda":
            return self._function()
        return self._assignment()

    def _choice(self) -> Callable[[Scope], None]:
        branches = []
        self._take("if")
        while True:
            test = self._expression()
            self._take("then")
            branches.append((test, self._block(("elsif", "else", "endif"))))
            if not self._if("elsif"):
                break
        other = self._block(("endif",)) if self._if("else") else []
        self._take("endif")

        def choose(scope: Scope) -> None:
            chosen = next((body for test, body in branches if test(scope).bits), other)
            for statement in chosen:
                statement(scope)

        return choose

    def _loop(self) -> Callable[[Scope], None]:
        self._take("for")
        name = self._take()
        self._take("in")
        first = self._expression()
        self._take(":")
        last = self._expression()
        self._take("do")
        body = self._block(("endfor",))
        self._take("endfor")

        def repeat(scope: Scope) -> None:
            try:
                for index in range(first(scope).number, last(scope).number + 1):
                    scope[name] = integer("I", 32, index)
                    for statement in body:
                        statement(scope)
            except Break:
                pass

        return repeat

    def _declaration(self) -> Callable[[Scope], None]:
        self._take("declare")
        name = self._take()
        self._take(":")
        width, _, kind = self._take().partition("'")
        count = 0
        if self._if("["):
            count = int(self._take())
            self._take("]")

        def declare(scope: Scope) -> None:
            fresh = Value(kind, int(width), 0)
            if name not in ("S", "i"):
                scope[name] = [fresh] * count if count else fresh

        return declare

    def _function(self) -> Callable[[Scope], None]:
        name = self._take()
        self._take("=")
        self._take("lambda")
        self._take("(")
        parameters = [self._take()]
        while self._if(","):
            parameters.append(self._take())
        self._take(")")
        self._take("(")
        if self._peek() in ("if", "declare"):
            body = self._block((")",))
        else:
            value = self._expression()

            def only(scope: Scope) -> None:
                raise Return(value(scope))

            body = [only]
        self._take(")")

        def define(scope: Scope) -> None:
            def call(*arguments: Value) -> Value:
                inner = {**scope, **dict(zip(parameters, arguments, strict=True))}
                try:
                    for statement in body:
                        statement(inner)
                except Return as result:
                    return result.value
                raise Unreadable(f"{name} returns nothing")

            scope[name] = call

        return define

    def _assignment(self) -> Callable[[Scope], None]:
        targets, operation = [self._target()], self._take("=", "+=", "-=")
        while operation == "=":
            here = self.at
            try:
                other = self._target()
            except Unreadable:
                self.at = here
                break
            if not self._if("="):
                self.at = here
                break
            targets.append(other)
        value = self._expression()

        def assign(scope: Scope) -> None:
            result = value(scope)
            for read, write in reversed(targets):
                write(scope, result if operation == "=" else arithmetic(operation[0], read(scope), result))

        return assign

    def _target(self) -> tuple[Expression, Callable[[Scope, Value], None]]:
        if self._if("{"):
            parts = [self._target()]
            while self._if(","):
                parts.append(self._target())
            self._take("}")

            def spread(scope: Scope, value: Value) -> None:
                rest = value.bits
                for read, write in reversed(parts):
                    width = read(scope).width
                    write(scope, Value("B", width, rest & (1 << width) - 1))
                    rest >>= width

            return parts[0][0], spread
        if self.tokens[self.at][0] != "name":
            raise Unreadable(f"{self._peek()!r} is assigned to")
        name = self._take()
        steps = self._steps()

        def read(scope: Scope) -> Value:
            value = scope.get(name, Value("B", 32, 0))
            for step in steps:
                value = step(scope, value)[0]
            return value

        def write(scope: Scope, value: Value) -> None:
            before = scope.get(name)
            if not steps and name not in ("D0", "D1", "VCC", "EXEC", "D"):
                scope[name] = value
            else:
                scope[name] = _stored(scope, before if before is not None else Value("B", 32, 0), steps, value)

        return read, write

    def _steps(self) -> list[Any]:
        """What follows a name: .type, [bit], [high : low], [first +: count]."""
        steps: list[Any] = []
        while True:
            if self._if("."):
                text = self._take()
                steps.append(_view(text))
            elif self._if("["):
                first = self._expression()
                if self._if(":"):
                    steps.append(_slice(first, self._expression()))
                elif self._if("+:"):
                    steps.append(_count(first, self._expression()))
                else:
                    steps.append(_element(first))
                self._take("]")
            else:
                return steps

    def _expression(self) -> Expression:
        test = self._level(0)
        if not self._if("?"):
            return test
        yes = self._expression()
        self._take(":")
        no = self._expression()
        return lambda scope: yes(scope) if test(scope).bits else no(scope)

    def _level(self, level: int) -> Expression:
        if level == len(LEVELS):
            return self._unary()
        left = self._level(level + 1)
        while self._peek() in LEVELS[level] and self.tokens[self.at][0] == "sign":
            sign = self._take()
            right = self._level(level + 1)
            left = _binary(sign, left, right)
        return left

    def _unary(self) -> Expression:
        if self._peek() in ("+", "-"):
            sign = self._take()
            zero = self._peek() in ("0.0", "0.0F")
            inner = self._unary()
            if zero:
                value = inner({})
                signed = SignedZero("F", value.width, (sign == "-") << (value.width - 1))
                return lambda _: signed
            return inner if sign == "+" else lambda scope: negated(inner(scope))
        if self._if("~"):
            inner = self._unary()
            return lambda scope: (lambda v: integer(v.kind, v.width, ~v.bits))(inner(scope))
        if self._if("!"):
            inner = self._unary()
            return lambda scope: integer("U", 1, not inner(scope).bits)
        value = self._primary()
        steps = self._steps()
        if not steps:
            return value

        def walk(scope: Scope) -> Value:
            result = value(scope)
            for step in steps:
                result = step(scope, result)[0]
            return result

        return walk

    def _primary(self) -> Expression:
        group, text = self.tokens[self.at]
        self.at += 1
        if group == "cast":
            width, _, kind = text.partition("'")
            self._take("(")
            inner = self._expression()
            self._take(")")
            return lambda scope: cast(inner(scope), kind, int(width))
        if group in ("sized", "number"):
            constant = _constant(text)
            return lambda _: constant
        if text == "(":
            inner = self._expression()
            self._take(")")
            return inner
        if text == "{":
            parts = [self._expression()]
            while self._if(","):
                parts.append(self._expression())
            self._take("}")
            return lambda scope: _joined([part(scope) for part in parts])
        if group != "name":
            raise Unreadable(f"{text!r} in an expression")
        if self._if("("):
            arguments = [self._expression()]
            while self._if(","):
                arguments.append(self._expression())
            self._take(")")
            return lambda scope: called(scope, text, [argument(scope) for argument in arguments])

        def look(scope: Scope) -> Value:
            if text in scope:
                found: Value = scope[text]
                return found
            if text in CONSTANTS:
                return CONSTANTS[text]
            raise Unreadable(f"the name {text}")

        return look


def _broken(_: Scope) -> None:
    raise Break


CONSTANTS = {
    "BYTE1": Value("U", 3, 1),
    "BYTE2": Value("U", 3, 2),
    "BYTE3": Value("U", 3, 3),
    "WORD1": Value("U", 3, 5),
    "PI": Value("F", 64, 0x400921FB54442D18),
    "INF": infinity(0, "F", 64),
    "NAN": nan("F", 64),
    "DENORM": Value("DENORM", 64, 0),
    "UNDERFLOW_F32": Value("F", 32, 0),
    "OVERFLOW_F32": infinity(0, "F", 32),
    "UNDERFLOW_F64": Value("F", 64, 0),
    "OVERFLOW_F64": infinity(0, "F", 64),
    "ROUND_NEAREST_EVEN": Value("U", 2, 0),
    "ROUND_TOWARD_ZERO": Value("U", 2, 3),
}


def _constant(text: str) -> Value:
    width, _, rest = text.partition("'") if "'" in text else ("", "", text)
    if "." in rest:
        size = int(width) if width else 32 if rest.endswith("F") else 64
        return encoded(0, Fraction(rest.rstrip("F")), "F", size)
    digits = rest.rstrip("UL") if rest.startswith("0x") else rest.rstrip("ULFIB")
    number = int(digits, 0)
    if width:
        return integer("I" if not rest.endswith("U") else "U", int(width), number)
    size = 64 if "LL" in rest else max(32, number.bit_length())
    return integer("U" if "U" in rest else "I", size, number)


def _binary(sign: str, left: Expression, right: Expression) -> Expression:
    if sign == "&&":
        return lambda scope: integer("U", 1, bool(left(scope).bits) and bool(right(scope).bits))
    if sign == "||":
        return lambda scope: integer("U", 1, bool(left(scope).bits) or bool(right(scope).bits))
    if sign in ("==", "!=", "<>", "<", "<=", ">", ">="):
        return lambda scope: compared(sign, left(scope), right(scope))
    return lambda scope: arithmetic(sign, left(scope), right(scope))


def _joined(parts: list[Value]) -> Value:
    bits = width = 0
    for part in parts:
        bits, width = bits << part.width | part.bits, width + part.width
    return Value("B", width, bits)


def _view(text: str) -> Any:
    found = VIEW.match(text)
    if not found:
        return lambda scope, value: (scope["modes"][text], 0, 1)
    kind, width = found["kind"].upper(), int(found["width"])
    if (kind == "BF" and width < 16) or kind == "FP":
        kind = f"{kind}{width}"

    def step(_: Scope, value: Value) -> tuple[Value, int, int]:
        if value.kind == "DENORM":
            return Value("DENORM", width, 0), 0, width
        if value.kind == "X" or (value.is_float and kind in ("F", "BF") and value.width != width):
            return converted(value, kind, width), 0, width
        return Value(kind, width, value.bits & (1 << width) - 1), 0, width

    return step


def _slice(first: Expression, last: Expression) -> Any:
    def step(scope: Scope, value: Value) -> tuple[Value, int, int]:
        high, low = first(scope).number, last(scope).number
        if high >= low:
            width = high - low + 1
            return Value("U", width, value.bits >> low & (1 << width) - 1), low, width
        width = low - high + 1
        part = value.bits >> high & (1 << width) - 1
        return Value("U", width, int(f"{part:0{width}b}"[::-1], 2)), high, width

    return step


def _count(first: Expression, count: Expression) -> Any:
    def step(scope: Scope, value: Value) -> tuple[Value, int, int]:
        low, width = first(scope).number, count(scope).number
        return Value("U", width, value.bits >> low & (1 << width) - 1), low, width

    return step


def _element(index: Expression) -> Any:
    def step(scope: Scope, value: Any) -> tuple[Any, int, int]:
        place = index(scope).number
        if isinstance(value, list):
            return value[place], place, -1
        return Value("U", 1, value.bits >> place & 1), place, 1

    return step


def _stored(scope: Scope, before: Any, steps: list[Any], value: Value) -> Any:
    """`before` with the value written where the steps lead."""
    if isinstance(before, list):
        _, place, _ = steps[0](scope, before)
        before[place] = _stored(scope, before[place], steps[1:], value)
        return before
    low, kind, width, here = 0, before.kind, before.width, before
    for step in steps:
        here, more, width = step(scope, here)
        kind, low = here.kind, low + more
    if kind in ("F", "BF") and value.is_float:
        value = converted(value, kind, width)
    bits = value.bits & (1 << width) - 1
    kept = before.bits & ~((1 << width) - 1 << low)
    return Value(before.kind, max(before.width, low + width), kept | bits << low)


def cast(value: Value, kind: str, width: int) -> Value:
    if kind in ("F", "BF"):
        if value.kind == "X":  # a power stays exact: one of fp32 would overflow where the product does not
            return value
        if value.is_float:
            return converted(value, kind, width)
        return Value(kind, width, value.bits & (1 << width) - 1)
    if value.is_float:
        if kind == "B":
            return Value(kind, width, value.bits & (1 << width) - 1)
        raise Unreadable("a float cast to an integer")
    return integer(kind, width, value.number)


# Functions of the pseudocode.

CONVERSION = re.compile(r"([a-z]+)(\d+)_to_([a-z]+)(\d+)$")
SCALED = re.compile(r"([a-z]+\d+)_to_([a-z]+\d+)_scale$")


def _to_integer(value: Value, kind: str, width: int) -> Value:
    """Toward zero, to the nearest limit where it does not fit; NaN is 0."""
    what, sign, magnitude = decoded(value)
    low, high = (0, (1 << width) - 1) if kind == "U" else (-(1 << width - 1), (1 << width - 1) - 1)
    if what == "nan":
        return integer(kind, width, 0)
    number = (1 << 2000) if what == "inf" else magnitude.numerator // magnitude.denominator
    return integer(kind, width, max(low, min(high, -number if sign else number)))


def small_float(sign: int, what: str, magnitude: Fraction, name: str, arch: str) -> Value:
    """A number as fp8 or bf8, to nearest even; what does not fit becomes NaN, or infinity where there is one."""
    if name == "FP4":
        bits = 7 if what == "inf" else _rounded(magnitude, 2, 1, 1, False) if what == "number" and magnitude else 0
        return Value(name, 4, sign << 3 | (7 if what == "nan" else min(bits, 7)))
    exponent_bits, fraction_bits, bias = SMALL[arch][name]
    top = (1 << exponent_bits) - 1 << fraction_bits
    bits = _rounded(magnitude, exponent_bits, fraction_bits, bias, False) if what == "number" and magnitude else 0
    if arch == "gfx942":
        over = bits > top | (1 << fraction_bits) - 1
        return Value(name, 8, 0x80 if what != "number" or over else bits and sign << 7 | bits)
    if name == "FP8":
        over = what != "number" or bits >= 0x7F
        return Value(name, 8, sign << 7 | (0x7F if over else bits))
    if what == "nan":
        return Value(name, 8, 0x7F)
    return Value(name, 8, sign << 7 | (top if what == "inf" or bits >= top else bits))


def from_small_float(value: Value, arch: str) -> Value:
    """fp8 or bf8 as fp32: every one is exact."""
    if value.kind == "FP4":
        low = (
            Fraction(value.bits & 1, 2)
            if not value.bits & 6
            else Fraction(2 + (value.bits & 1), 2) * 2 ** ((value.bits >> 1 & 3) - 1)
        )
        return encoded(value.bits >> 3 & 1, low, "F", 32)
    exponent_bits, fraction_bits, bias = SMALL[arch][value.kind]
    sign, magnitude = value.bits >> 7, value.bits & 0x7F
    exponent, fraction = magnitude >> fraction_bits, magnitude & (1 << fraction_bits) - 1
    if arch == "gfx942":
        if value.bits == 0x80:
            return nan("F", 32)
    elif value.kind == "FP8":
        if magnitude == 0x7F:
            return nan("F", 32)
    elif exponent == 31:
        return nan("F", 32) if fraction else infinity(sign, "F", 32)
    if exponent:
        fraction += 1 << fraction_bits
    return encoded(sign, Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits), "F", 32)


def _scaled(source: str, target: str, value: Value, scale: Value, *, arch: str) -> Value:
    """A conversion with a scale, the exponent of a power of two: from a small format multiplied, to one divided."""
    power = Fraction(2) ** (scale.number - 127)
    if source in ("fp8", "bf8", "fp4"):
        wide = from_small_float(Value(source.upper(), 8, value.bits), arch)
        what, sign, magnitude = decoded(wide)
        kind, width = ("BF", 16) if target == "bf16" else ("F", int(target[1:]))
        if what != "number":
            return nan(kind, width) if what == "nan" else infinity(sign, kind, width)
        return encoded(sign, magnitude * power, kind, width)
    what, sign, magnitude = decoded(value)
    return small_float(sign, what, magnitude / power, target.upper(), arch)


def _whole(value: Value, how: Callable[[Fraction], int]) -> Value:
    what, sign, magnitude = decoded(value)
    if what != "number":
        return value
    result = how(-magnitude if sign else magnitude)
    return encoded(sign if result == 0 else int(result < 0), Fraction(abs(result)), value.kind, value.width)


def _root(value: Value) -> Value:
    what, sign, magnitude = decoded(value)
    if what == "nan" or (sign and (what == "inf" or magnitude)):
        return nan(value.kind, value.width)
    if what == "inf" or not magnitude:
        return value
    scale = 1 << 700  # enough bits of the root that its rounding is that of the exact one
    number = magnitude * scale * scale
    root = math.isqrt(number.numerator // number.denominator)
    exact = Fraction(root * root) == number
    return encoded(0, Fraction(2 * root + (not exact), 2 * scale), value.kind, value.width)


def _through_floats(function: Callable[[float], float], value: Value) -> Value:
    what, sign, magnitude = decoded(value)
    number = math.nan if what == "nan" else math.inf if what == "inf" else float(magnitude)
    try:
        result = function(-number if sign else number)
    except OverflowError:
        return infinity(0, value.kind, value.width)
    except ValueError:
        return nan(value.kind, value.width)
    if math.isnan(result):
        return nan(value.kind, value.width)
    if math.isinf(result):
        return infinity(int(result < 0), value.kind, value.width)
    return encoded(int(math.copysign(1, result) < 0), Fraction(abs(result)), value.kind, value.width)


def _log2(number: float) -> float:
    return -math.inf if number == 0 else math.log2(number)


def _field(value: Value) -> tuple[int, int]:
    exponent_bits, fraction_bits = FORMATS[value.kind, value.width]
    return value.bits >> fraction_bits & (1 << exponent_bits) - 1, value.bits & (1 << fraction_bits) - 1


def _quiet(value: Value) -> Value:
    return Value(value.kind, value.width, value.bits | 1 << (FORMATS[value.kind, value.width][1] - 1))


def _signals(value: Value) -> bool:
    return decoded(value)[0] == "nan" and _quiet(value) != value


def _mantissa(value: Value) -> Value:
    """In [0.5, 1), with the sign."""
    _, sign, magnitude = decoded(value)
    while magnitude and magnitude >= 1:
        magnitude /= 2
    while magnitude and magnitude < Fraction(1, 2):
        magnitude *= 2
    return encoded(sign, magnitude, value.kind, value.width)


def _largest(a: Value, b: Value, least: bool) -> Value:
    """IEEE 754-2019 minimum and maximum: a NaN stays one, -0 is below +0."""
    if "nan" in (decoded(a)[0], decoded(b)[0]):
        return nan(a.kind, a.width)
    first = compared("<", a, b).bits or (not compared(">", a, b).bits and a.bits >> (a.width - 1))
    return (a if first else b) if least else (b if first else a)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "abs": lambda a: Value(a.kind, a.width, a.bits & ~(1 << a.width - 1)),
    "sign": lambda a: Value("U", 1, a.bits >> (a.width - 1) & 1),
    "exponent": lambda a: integer("I", 32, _field(a)[0]),
    "mantissa": _mantissa,
    "isNAN": lambda a: integer("U", 1, decoded(a)[0] == "nan"),
    "isSignalNAN": lambda a: integer("U", 1, _signals(a)),
    "isQuietNAN": lambda a: integer("U", 1, decoded(a)[0] == "nan" and not _signals(a)),
    "cvtToQuietNAN": _quiet,
    "floor": lambda a: _whole(a, math.floor),
    "trunc": lambda a: _whole(a, math.trunc),
    "fract": lambda a: arithmetic("-", a, _whole(a, math.floor)),
    "isEven": lambda a: integer("U", 1, decoded(a)[2] % 2 == 0),
    "sqrt": _root,
    "log2": lambda a: _through_floats(_log2, a),
    "pow": lambda _, a: _through_floats(lambda x: math.pow(2.0, x), a),
    "sin": lambda a: _through_floats(math.sin, a),
    "cos": lambda a: _through_floats(math.cos, a),
    "ldexp": lambda a, b: arithmetic("*", a, Value("X", 0, Fraction(2) ** max(-5000, min(5000, b.number)))),
    "fma": lambda a, b, c: total([times(a, b), decoded(c)], a.kind, a.width),
    "signext": lambda a: integer("I", 64, integer("I", a.width, a.bits).number),
    "signext_from_bit": lambda a, b: integer(
        a.kind, a.width, integer("I", b.number, a.bits & (1 << b.number) - 1).number if b.number else 0
    ),
    "bitCount": lambda a: integer("U", 32, a.bits.bit_count()),
    "v_minimum_f32": lambda a, b: _largest(a, b, True),
    "v_maximum_f32": lambda a, b: _largest(a, b, False),
    "v_minimum3_f16": lambda a, b, c: _largest(_largest(a, b, True), c, True),
    "v_maximum3_f16": lambda a, b, c: _largest(_largest(a, b, False), c, False),
    # Of the corrections, not of AMD's text:
    "toNearestEven": lambda a: _whole(a, round),
    "powerOfTwo": lambda a: _power_of_two(a),
    "fractionBelowOne": lambda a: _below_one(arithmetic("-", a, _whole(a, math.floor))),
    "sineOfTurns": lambda a: _through_floats(math.sin, _turns(a)),
    "cosineOfTurns": lambda a: _through_floats(math.cos, _turns(a)),
}

CORRECTED = {
    "V_RNDNE_F16": ("D0.f16 = toNearestEven(S0.f16)", "x + 0.5 rounds: 1 too much at 0.49999997 and beyond 2^10"),
    "V_RNDNE_F32": ("D0.f32 = toNearestEven(S0.f32)", "x + 0.5 rounds: 1 too much at 0.49999997 and beyond 2^23"),
    "V_RNDNE_F64": ("D0.f64 = toNearestEven(S0.f64)", "the sign of a zero is lost"),
    "V_FRACT_F16": ("D0.f16 = fractionBelowOne(S0.f16)", "1 for a tiny negative number; the result is below 1"),
    "V_FRACT_F32": ("D0.f32 = fractionBelowOne(S0.f32)", "1 for a tiny negative number; the result is below 1"),
    "V_FRACT_F64": ("D0.f64 = fractionBelowOne(S0.f64)", "1 for a tiny negative number; the result is below 1"),
    "V_FREXP_EXP_I16_F16": ("D0.i16 = powerOfTwo(S0.f16)", "takes the field: wrong for denormals and zero"),
    "V_FREXP_EXP_I32_F32": ("D0.i32 = powerOfTwo(S0.f32)", "takes the field: wrong for denormals and zero"),
    "V_FREXP_EXP_I32_F64": ("D0.i32 = powerOfTwo(S0.f64)", "takes the field: wrong for denormals and zero"),
    "V_SIN_F16": ("D0.f16 = sineOfTurns(S0.f16)", "2 pi x is rounded before the sine is taken"),
    "V_SIN_F32": ("D0.f32 = sineOfTurns(S0.f32)", "2 pi x is rounded before the sine is taken"),
    "V_COS_F16": ("D0.f16 = cosineOfTurns(S0.f16)", "2 pi x is rounded before the cosine is taken"),
    "V_COS_F32": ("D0.f32 = cosineOfTurns(S0.f32)", "2 pi x is rounded before the cosine is taken"),
}
"""Instructions whose pseudocode is not meant to the letter: (what is executed in its place, why)."""


def _power_of_two(value: Value) -> Value:
    """The exponent that brings the magnitude to [0.5, 1); 0 for what has none."""
    what, _, magnitude = decoded(value)
    return integer("I", 32, _floor_log2(magnitude) + 1 if what == "number" and magnitude else 0)


def _below_one(value: Value) -> Value:
    one = encoded(0, Fraction(1), value.kind, value.width)
    return Value(value.kind, value.width, one.bits - 1) if value.bits == one.bits else value


def _turns(value: Value) -> Value:
    """2 pi x in fp64, of what x is beyond whole turns."""
    what, sign, magnitude = decoded(value)
    if what != "number":
        return nan("F", 64)
    rest = magnitude - round(magnitude)
    angle = Fraction(math.pi) * 2 * abs(rest)
    return encoded(sign ^ int(rest < 0), angle, "F", 64)


def called(scope: Scope, name: str, arguments: list[Value]) -> Value:
    """A function of the pseudocode, of the program itself, a conversion, or another instruction."""
    if name in scope:
        result: Value = scope[name](*arguments)
        return result
    if name in FUNCTIONS:
        return FUNCTIONS[name](*arguments)
    if found := SCALED.match(name):
        return _scaled(found[1], found[2], *arguments, arch=scope["arch"])
    found = CONVERSION.match(name)
    if found:
        source, size, kind, width = found[1], int(found[2]), found[3].upper(), int(found[4])
        if kind in ("FP", "BF") and width == 8:
            what, sign, magnitude = decoded(arguments[0])
            return small_float(sign, what, magnitude, f"{kind}8", scope["arch"])
        if source in ("fp", "bf") and size == 8:
            return from_small_float(arguments[0], scope["arch"])
        if kind in ("F", "BF"):
            if source in ("u", "i"):
                number = arguments[0].number
                return encoded(int(number < 0), Fraction(abs(number)), kind, width)
            return converted(arguments[0], kind, width, scope["ROUND_MODE"].bits == 3)
        if source in ("f", "bf"):
            return _to_integer(arguments[0], kind, width)
        if source == kind.lower() and size < width:
            return integer(kind, width, integer(kind, size, arguments[0].bits).number)
        if source in ("u", "i"):
            low, high = (0, (1 << width) - 1) if kind == "U" else (-(1 << width - 1), (1 << width - 1) - 1)
            return integer(kind, width, max(low, min(high, arguments[0].number)))
    if name.startswith(("v_", "s_")):
        inner = {
            **{key: scope[key] for key in ("arch", "modes", "ROUND_MODE", "WAVE_MODE")},
            **{f"S{index}": argument for index, argument in enumerate(arguments)},
            "D0": Value("B", 64, 0),
        }
        program(name.upper()).run(inner)
        kind, width = re.search(r"D0\.([uif])(\d+) =", texts()[name.upper()]).groups()  # type: ignore[union-attr]
        return Value(kind.upper(), int(width), inner["D0"].bits & (1 << int(width)) - 1)
    raise Unreadable(f"the function {name}")


@functools.cache
def texts() -> dict[str, str]:
    """Pseudocode by the instruction's name, without the suffix of its encoding."""
    from tinygrad.runtime.autogen.amd.cdna.str_pcode import PCODE

    return {op.name.removesuffix("_E32").removesuffix("_E64"): text for op, text in PCODE.items()}


@functools.cache
def program(name: str) -> Program:
    """The pseudocode of an instruction; Unreadable if it cannot be read."""
    return Program(CORRECTED[name][0] if name in CORRECTED else texts()[name])
