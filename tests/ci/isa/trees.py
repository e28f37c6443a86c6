"""Compile source trees for real, plant changes in them, and read the alarms: for tests of the ISA gate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ci.isa.compiled import CompiledTree, parse
from ci.isa.judge import CodeVerdict, IsaJudgement

ROOT = Path(__file__).resolve().parents[3]


def compiled(tree: Path, cache: Path, *arches: str, **chosen) -> CompiledTree:
    """A source tree, compiled; chosen: see result_file."""
    return parse(result_file(tree, cache, *arches, **chosen), str(tree))


def result_file(tree: Path, cache: Path, *arches: str, kernels=(), cases=(), backends=()) -> str:
    """The text of a tree's result file."""
    command = [sys.executable, "-m", "benchmarks.isa", "--tree", tree, "--cache", cache]
    command += ["--progress", "none"]
    for flag, values in (("--arch", arches), ("--kernel", kernels), ("--case", cases), ("--backend", backends)):
        for value in values:
            command += [flag, value]
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.stdout


def change(path: Path, *changes: tuple[str, str]) -> None:
    """Replace text in a file; every replacement must apply."""
    text = path.read_text()
    for old, new in changes:
        assert old in text, f"{path.name} has no {old!r}"
        text = text.replace(old, new)
    path.write_text(text)


def alarms(judgement: IsaJudgement) -> dict[tuple[str, str], list[str]]:
    """(kernel, arch) -> rules that alarm; every configuration without alarm must be SAME."""
    for difference in judgement.differences:
        assert difference.alarms or difference.verdict is CodeVerdict.SAME, (difference, difference.findings)
    found: dict[tuple[str, str], list[str]] = {}
    for difference in judgement.differences:
        for finding in difference.alarms:
            rules = found.setdefault((difference.kernel, difference.arch), [])
            rules += [finding.rule] if finding.rule not in rules else []
    return found


DEQUANTISE = '''@triton.jit
def dequantised(packed, scale):
    """[rows, K/2] bytes of two e2m1 and [rows, K/32] e8m0 -> [rows, K] bf16."""
    nibbles = tl.join(packed & 15, packed >> 4).reshape(packed.shape[0], packed.shape[1] * 2).to(tl.int32)
    exponent, mantissa = (nibbles >> 1) & 3, nibbles & 1
    value = tl.where(exponent == 0, mantissa * 0.5, (1.0 + 0.5 * mantissa) * tl.exp2((exponent - 1).to(tl.float32)))
    value = tl.where(nibbles >= 8, -value, value)
    factor = tl.exp2(scale.to(tl.float32) - 127.0)
    factor = tl.broadcast_to(factor[:, :, None], (scale.shape[0], scale.shape[1], 32)).reshape(value.shape)
    return (value * factor).to(tl.bfloat16)


'''
"""What MXFP4 costs without the scaled matrix instruction."""
