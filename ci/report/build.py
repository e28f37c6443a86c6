"""From trials and a judgement to a report: who was compared, on what machine, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ci.git.repository import LocalCheckout as Tree
from ci.report.model import CaseCost, Report, Side, Skip
from ci.stats.types import Clocks, Judgement
from ci.trials.file import TrialLine


def report_of(
    judgement: Judgement,
    lines: Sequence[TrialLine],
    trees: Iterable[Tree] = (),
    title: str = "pull request",
    warnings: Iterable[str] = (),
    links: Mapping[str, str] | None = None,
) -> Report:
    """The report on trials: the newest trial names the machine, every trial adds what it left out."""
    newest: Mapping[str, Any] = lines[-1].data if lines else {}
    sides = {tree.role: Side(tree.commit.hash if tree.commit else "", "", tree.dirty) for tree in trees}
    for role, tree in newest.get("trees", {}).items():
        known = sides.get(role, Side(tree.get("commit") or "", "", bool(tree.get("dirty"))))
        sides[role] = Side(known.commit, known.name, known.dirty, _plain(tree.get("environment", {})))
    said = [text for line in lines for text in _warnings(line.data)]
    return Report(
        judgement,
        title,
        sides.get("base", Side()),
        sides.get("head", Side()),
        machine=_plain(newest.get("machine", {})),
        costs=costs_of(lines),
        clocks=_clocks(newest),
        skipped=tuple(skips_of(lines)),
        warnings=tuple(dict.fromkeys([*warnings, *said])),
        links=links or {},
    )


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if isinstance(value, (str, int, float, bool)) or value is None}


def _warnings(trial: Mapping[str, Any]) -> list[str]:
    broken = [
        f"kernels module {b['module']} of the {role} tree is broken: {b['reason']}"
        for role, tree in trial["trees"].items()
        for b in tree.get("broken", [])
    ]
    cases = [
        f"{trial['kernel']}/{name}: {text}"
        for name, case in trial["cases"].items()
        for text in case.get("warnings", [])
    ]
    return [*broken, *trial.get("warnings", []), *cases]


def skips_of(lines: Sequence[TrialLine]) -> Iterable[Skip]:
    """What has no time: one entry for all backends and cases of a kernel that share a reason."""
    found: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for line in lines:
        for name, case in line.data["cases"].items():
            for arm, result in case.get("arms", {}).items():
                if result["status"] != "ok":
                    key = (line.data["kernel"], result["status"], str(result.get("why", "")))
                    found.setdefault(key, []).append((arm.split("/", 1)[1], name))
    for (kernel, status, why), arms in found.items():
        backends, cases = (list(dict.fromkeys(part)) for part in zip(*arms, strict=True))
        yield Skip(f"{kernel}/{_few(backends)}/{_few(cases)}", status, why)


def _few(names: Sequence[str]) -> str:
    """One name as it is, a few in braces, many by their number."""
    if len(names) == 1:
        return names[0]
    return "{" + ",".join(names) + "}" if len(names) <= 3 else f"({len(names)}: {names[0]} ...)"


def costs_of(lines: Sequence[TrialLine]) -> dict[str, CaseCost]:
    costs: dict[str, CaseCost] = {}
    for line in lines:
        for tree in line.data["trees"].values():
            declared = tree["declaration"]
            worlds = {case["name"]: int(case.get("world", 1)) for case in declared.get("cases", [])}
            for name, cost in declared.get("costs", {}).items():
                for backend in declared.get("backends", []):
                    costs[f"{line.data['kernel']}/{backend}/{name}"] = CaseCost(
                        cost["flops"], cost["hbm_bytes"], cost["link_bytes"], worlds.get(name, 1)
                    )
    return costs


def _clocks(trial: Mapping[str, Any]) -> dict[str, Clocks]:
    state = trial.get("state") or {}
    return {
        moment: Clocks(
            reading.get("sm_clock_mhz"),
            reading.get("power_w"),
            reading.get("temperature_c"),
            str(reading.get("throttle") or ""),
        )
        for moment in ("before", "after")
        if (reading := state.get(moment))
    }
