"""Numbers and sentences shared by the renderings.  Pure functions; a number always carries its unit."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ci.judging.types import CaseVerdict, Floor, Group, Judgement, Verdict
from ci.records import rates
from ci.records.ledger import Explanation, TriedCause
from ci.records.rates import Rate
from ci.report.model import Bullet, CaseCost, Report, Scalar, Skip
from ci.stats import Clocks

NOTHING = "-"

NAME = re.compile(r"[\w.-]+/[\w.-]+")
"""A kernel and a case, as they can stand in a command line."""

NAMED = 3
"""Cases that a command or a sentence names."""


def percent(ratio: float | None) -> str:
    """A change of time as ``+2.52 %`` (slower) or ``-12.3 %``: two decimals below 10 %, one below 100 %."""
    if ratio is None:
        return NOTHING
    change = (ratio - 1.0) * 100.0
    return f"{change:+.{_decimals(change)}f} %"


def interval(low: float | None, high: float | None) -> str:
    """An interval of ratios in percent: ``[+2.11, +2.93]``."""
    if low is None or high is None:
        return NOTHING
    changes = ((low - 1.0) * 100.0, (high - 1.0) * 100.0)
    decimals = min(_decimals(change) for change in changes)
    return "[" + ", ".join(f"{change:+.{decimals}f}" for change in changes) + "]"


def _decimals(change: float) -> int:
    return 2 if abs(change) < 10 else 1 if abs(change) < 100 else 0


def times(base_s: float | None, head_s: float | None) -> str:
    """Both times in one unit, chosen by the longer: ``41.2 → 42.3 µs``."""
    known = [t for t in (base_s, head_s) if t is not None]
    if not known:
        return NOTHING
    scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e-3, "ms")) if max(known) >= s), (1e-6, "µs"))
    return " → ".join("?" if t is None else _three(t / scale) for t in (base_s, head_s)) + f" {unit}"


def duration(seconds: float) -> str:
    """One time: ``41.2 µs``."""
    return times(seconds, seconds).split(" → ")[1]


def _three(value: float) -> str:
    """Three significant digits without an exponent, more before the point if need be."""
    return f"{value:.{max(0, 2 - max(0, len(str(int(abs(value)))) - 1))}f}"


def rate(cost: CaseCost | None, seconds: float | None) -> str:
    """The speed in the unit in which the case is quoted everywhere: TFLOPS, GB/s of the HBM, or GB/s of the bus."""
    unit = rates.headline(cost) if cost and seconds else Rate.TIME
    if unit is Rate.TIME or cost is None or not seconds:
        return NOTHING
    speed = rates.value(unit, float(getattr(cost, rates.AMOUNT[unit])), float(cost.world), seconds)
    if unit is Rate.TFLOPS:
        return f"{_three(speed)} TFLOPS" if speed >= 1 else f"{_three(1000 * speed)} GFLOPS"
    return f"{_three(speed)} GB/s{' bus' if unit is Rate.BUSBW else ''}"


def groups_of(report: Report) -> tuple[tuple[Group | None, tuple[CaseVerdict, ...]], ...]:
    """The moved cases, those with one cause together.  Order: that of the worst case in each group."""
    owner = {name: group for group in report.judgement.groups for name in group.cases}
    rows: dict[int | str, tuple[Group | None, list[CaseVerdict]]] = {}
    for case in report.moved():
        group = owner.get(case.case) if case.verdict in (Verdict.SLOWER, Verdict.FASTER) else None
        rows.setdefault(id(group) if group else case.verdict, (group, []))[1].append(case)
    return tuple((group, tuple(cases)) for group, cases in rows.values())


def cause(group: Group | None, cases: Sequence[CaseVerdict]) -> str:
    """What cases shown together have in common: ``gemm / triton: 3 shapes slower together, +2.52 % [+2.11, +2.93]``."""
    if group is None:
        return plural(len(cases), "case")
    where = " / ".join(part for part in (group.kernel, group.backend) if part)
    change = f"{percent(group.ratio)} {interval(group.ci_low, group.ci_high)}"
    return f"{where}: {plural(len(group.cases), 'shape')} {group.direction} together, {change}"


def why(group: Group | None, cases: Sequence[CaseVerdict]) -> list[Bullet]:
    """Each different sentence of evidence or warning once, with the names of its cases unless it is about all of them.

    Sentences that open with the change itself ("+2.5%, ...") are left out: the table says it.
    """
    said: dict[str, list[str]] = {group.evidence: []} if group and group.evidence else {}
    for case in cases:
        for sentence in (*case.evidence, *case.warnings):
            if case.ratio is None or not re.match(r"[+-]\d", sentence):
                said.setdefault(sentence, []).append(case.case)
    return [Bullet(sentence, tuple(names) if len(names) < len(cases) else ()) for sentence, names in said.items()]


def evidence(cases: Sequence[CaseVerdict]) -> list[Bullet]:
    """All that is said of cases, a line for those of which the same is said; no names where that is all of many that
    have no verdict.
    """
    found: dict[str, list[str]] = {}
    for case in cases:
        found.setdefault("; ".join(case.evidence) or "no reason given", []).append(case.case)
    if len(found) == 1 and len(cases) > NAMED and cases[0].verdict is Verdict.CANNOT_TELL:
        return [Bullet(f"all {len(cases)}: {reason}") for reason in found]
    return [Bullet(reason, tuple(names)) for reason, names in found.items()]


def skipped(skips: Iterable[Skip]) -> list[Bullet]:
    """What has no time, and why."""
    return [Bullet(f"{skip.status}, {skip.why}", (skip.what,), most=480) for skip in skips]


def cells(report: Report, case: CaseVerdict) -> dict[str, str]:
    """What a table says of a case, by column."""
    return {
        "time": percent(case.ratio),
        "interval %": interval(case.ci_low, case.ci_high),
        "base → head": times(case.base_seconds, case.head_seconds),
        "head reaches": rate(report.costs.get(case.case), case.head_seconds),
        "trials": f"{case.trials} × {case.rounds}" if case.trials else NOTHING,
    }


def command(report: Report) -> str:
    """What measures the worst cases of two commits again, or checks them where they no longer work; "" if that cannot
    be said: of a replay, of names that no declaration can have, or where options made the difference."""
    worst = report.judgement.of(report.verdict)
    base, head = report.base.commit[:12], report.head.commit[:12]
    kernels = dict.fromkeys(case.kernel for case in worst)
    program = next((name for name in kernels if name in report.programs), "")
    if report.again and (program or not report.programs):
        return report.again
    if program:
        return f"ridgeline ab {base} {head} --program {program}"
    names = dict.fromkeys(f"{case.kernel}/{case.case.rpartition('/')[2]}" for case in worst)
    same = report.base.commit == report.head.commit and not report.head.dirty
    if not base or same or not worst or not all(map(NAME.fullmatch, names)):
        return ""
    verb = "verify" if report.verdict is Verdict.BROKEN else f"ab {base}" if report.head.dirty else f"ab {base} {head}"
    few = ["--tier sweep", *(f"--case {name}" for name in names)] if len(names) <= NAMED else []
    return " ".join(["ridgeline", verb, *(f"--kernel {name}" for name in kernels), *few])


def counts(cases: Iterable[CaseVerdict]) -> dict[Verdict, int]:
    """Number of cases per verdict, worst first, without zeros."""
    found = Counter(case.verdict for case in cases)
    return {verdict: found[verdict] for verdict in Verdict if found[verdict]}


def folded(cases: Iterable[CaseVerdict]) -> tuple[str, ...]:
    """One phrase per verdict that is not shown case by case."""
    listed = tuple(cases)
    parts = []
    for verdict, number in counts(listed).items():
        if not verdict.moved:
            widest = max((abs(c.ratio - 1) for c in listed if c.verdict is verdict and c.ratio), default=None)
            size = f", at most {100 * widest:.2g} % apart" if widest is not None and verdict is Verdict.SAME else ""
            parts.append(f"{number} {verdict}{size}")
    return tuple(parts)


def named(cases: Sequence[str]) -> str:
    """One case by its name, two or three with their number, more by their number and the first three."""
    if len(cases) == 1:
        return plain(cases[0])
    shown = ", ".join(plain(case, 120) for case in cases[:NAMED])
    return f"{len(cases)} cases ({shown}{', ...' if len(cases) > NAMED else ''})"


def told(bullet: Bullet) -> str:
    """A line of a list, led by its cases."""
    return f"{named(bullet.cases)}: {bullet.text}" if bullet.cases else bullet.text


def floors(judgement: Judgement) -> list[Bullet]:
    """One line per floor that is missed or not known, but one per cause for those that were not timed.

    The reason of a floor stands in the first line that it applies to.
    """
    equal = {case.case for case in judgement.cases if case.verdict is Verdict.SAME and case.ratio is None}
    found: dict[tuple[str, str], list[Floor]] = {}
    for floor in judgement.floors:
        if floor.state != "met":
            same = ", both sides run equal code" if floor.state == "absent" and floor.case in equal else ""
            found.setdefault((f"{floor_line(floor)}{same}", floor.reason), []).append(floor)
    lines, reasons = [], set[str]()
    for (text, reason), missed in found.items():
        because = "" if reason in reasons else f"; {reason}"
        style = "red" if missed[0].new else "yellow"
        lines.append(Bullet(f"{text}{because}", tuple(floor.case for floor in missed), style, most=480))
        reasons.add(reason)
    return lines


def floor_line(floor: Floor) -> str:
    """A floor against the baseline in one sentence, without the case's name."""
    bound = f"floor {floor.bound:.2f} of {floor.baseline}"
    if floor.share is None:
        return f"{bound}: not timed"
    within = f" [{floor.share_low:.3f}, {floor.share_high:.3f}]" if floor.share_low and floor.share_high else ""
    before = f", base {floor.base_share:.3f}" if floor.base_share is not None else ""
    return f"{bound}, reached {floor.share:.3f}{within}{before}: {floor.state}"


CODE_LISTED = 6
"""Differences of the machine code that a report lists beside a cause; the JSON report has all of them."""


def cause_lines(one: Explanation) -> list[str]:
    """What was put back, each with what it did (of one thing the sentence says it), machine code, and what it took."""
    lines = [_tried_line(tried) for tried in one.tried] if len(one.tried) > 1 else []
    code = [f"machine code: {'; '.join(one.code[:CODE_LISTED])}"] if one.code else []
    spent = f"{plural(one.experiments, 'experiment')}, {plural(one.trials, 'trial')}, {one.seconds:.0f} s"
    return [*lines, *code, *([f"measured on {one.measured}: {spent}"] if one.experiments else [])]


def _tried_line(tried: TriedCause) -> str:
    what = f"{tried.kind} {tried.name}" + (f" ({tried.change})" if tried.change else "")
    if tried.why:
        return f"{what}: {tried.answer}: {tried.why}"
    share = "" if tried.share is None or not tried.answer.startswith("explains") else f", {100 * tried.share:.0f} %"
    left = f"; {percent(tried.ratio)} {interval(tried.low, tried.high)} is left" if tried.ratio is not None else ""
    return f"{what}: {tried.answer}{share}{left}"


def clocks_line(clocks: Clocks) -> str:
    """What a device reported, in one line; "nothing reported" if it reported nothing."""
    readings = ((clocks.sm_clock_mhz, "MHz"), (clocks.power_w, "W"), (clocks.temperature_c, "°C"))
    parts = [f"{value:.0f} {unit}" for value, unit in readings if value is not None]
    if clocks.throttle:
        parts.append(f"throttled: {clocks.throttle}")
    return ", ".join(parts) or "nothing reported"


def machine_line(machine: Mapping[str, Scalar]) -> str:
    """``H200 SXM x2 (h200x2-1a2b3c4d)``; the fingerprint decides, never a runner's label."""
    device = machine.get("market_name") or machine.get("device") or machine.get("cpu") or "an unknown machine"
    number = machine.get("count")
    many = f" x{number}" if isinstance(number, int) and number > 1 else ""
    name = machine.get("name")
    return f"{device}{many}" + (f" ({name})" if name else "")


def plural(number: int, noun: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def plain(text: object, limit: int = 240) -> str:
    """Text from outside on one line, without spaces at its ends; see :func:`printable`."""
    return _cut(printable(str(text)).strip(), limit)


def printable(text: str) -> str:
    """On one line: no control or direction-changing characters, no two spaces in a row."""
    seen = "".join(" " if char in "\n\r\t\u2028\u2029" else char for char in text)
    line = "".join(char for char in seen if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    return re.sub(r" {2,}", " ", line)


def _cut(line: str, limit: int) -> str:
    return line if len(line) <= limit else line[: limit - 1] + "…"
