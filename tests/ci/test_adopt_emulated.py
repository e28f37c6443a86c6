"""A script on two commits by what its launches execute."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ci import adopt
from ci.adopt import NothingToCompare, ScriptRequest
from ci.git.repository import Repository
from ci.isa.judge import CodeVerdict
from ci.isa.rules import IsaPolicy
from tests import kit

COUNTS = {
    **{name: {} for name in ("matrix", "bytes", "touched", "lines", "conflicts")},
    **dict.fromkeys(("matrix_cycles", "lds_passes", "lds_cycles", "branches", "taken", "divergent", "idle"), 0),
    "classes": {"load": 4, "valu": 9},
    "requests": {"load": 100},
    "vector": 13 * 64,
}


def launch(kernel="scale", **changes):
    lines = {"repo/pkg/k.py:7: x = tl.load(p)": {"load": 4}, "repo/pkg/k.py:8: y = 2 * x": {"valu": 9}}
    about = {"arch": "gfx942", "grid": [4, 1, 1], "arguments": ["float32[64]", "64"], "registers": {"vgpr_count": 8}}
    return {"kernel": kernel, "code": "a", "counts": COUNTS, "lines": lines, "busiest": "memory", **about, **changes}


def run(*rows, code=0, failures=()):
    ended = {"code": code, "stopped": False, "passed": not code and not failures}
    return SimpleNamespace(launches=list(rows), failures=list(failures), **ended)


def compared(monkeypatch, base, head):
    runs = iter([base, head])
    monkeypatch.setattr(adopt, "emulated", lambda *words, **how: next(runs))
    sides = [SimpleNamespace(role=role, path=Path(role)) for role in ("base", "head")]
    return adopt.compared(ScriptRequest(Path("bench.py"), Path("bench.py")), sides, "gfx942", IsaPolicy(), {})


def test_a_kernel_in_the_script_itself_is_compared_by_the_text_of_each_side(monkeypatch, tmp_path):
    for role in ("base", "head"):
        (tmp_path / role).mkdir()
        (tmp_path / role / "bench.py").write_text(role)
    ran = []
    monkeypatch.setattr(adopt, "emulated", lambda words, arch, **how: ran.append(words[3]) or run(launch()))
    sides = [SimpleNamespace(role=role, path=tmp_path / role) for role in ("base", "head")]
    for own, expected in ((True, ["base", "head"]), (False, ["head", "head"])):
        request = ScriptRequest(Path("bench.py"), tmp_path / "head/bench.py", own=own)
        adopt.compared(request, sides, "gfx942", IsaPolicy(), {})
        assert [Path(source).parent.name for source in ran[-2:]] == expected


def test_more_requests_of_a_memory_bound_launch_are_slower_and_the_line_is_named(monkeypatch):
    lines = {
        "elsewhere/pkg/k.py:8: x = tl.load(p)": {"load": 4},  # moved, and the same
        "elsewhere/pkg/k.py:9: y = 2 * x + tl.load(q)": {"valu": 12, "load": 4},
    }
    counts = {**COUNTS, "requests": {"load": 200}}
    found = compared(monkeypatch, run(launch()), run(launch(code="b", counts=counts, lines=lines)))
    assert (found.verdict, found.exit_code) == (CodeVerdict.SLOWER, 1)
    [difference] = found.differences
    sentences = [one.sentence for one in difference.findings]
    assert sentences[0] == "bytes moved +100 % (6400 → 12800): SLOWER is expected of a memory-bound case"
    assert "k.py:9: y = 2 * x + tl.load(q): valu 0 → 12, load 0 → 4" in sentences
    assert not any("x = tl.load(p)" in one for one in sentences)


def test_loads_that_are_no_longer_vectorised_are_slower_though_they_bring_as_many_bytes(monkeypatch):
    def loads(times, code):
        counts = {**COUNTS, "classes": {"load": times, "valu": 9}, "bytes": {"load": 4096}}
        return run(launch(code=code, counts=counts))

    found = compared(monkeypatch, loads(4, "a"), loads(16, "b"))
    assert (found.verdict, found.exit_code) == (CodeVerdict.SLOWER, 1)
    assert found.differences[0].findings[0].sentence.startswith("loads of 16 → 4 bytes per lane")
    assert compared(monkeypatch, loads(4, "a"), loads(8, "b")).verdict is CodeVerdict.CHANGED


def test_other_code_that_executes_as_much_is_changed_and_equal_code_the_same(monkeypatch):
    assert compared(monkeypatch, run(launch()), run(launch())).exit_code == 0
    other = compared(monkeypatch, run(launch()), run(launch(code="b")))
    assert (other.verdict, other.exit_code) == (CodeVerdict.CHANGED, 2)


def test_a_launch_on_other_buffers_of_the_same_sizes_counts_once(monkeypatch):
    assert len(compared(monkeypatch, run(*[launch()] * 3), run(launch())).differences) == 1
    two = compared(monkeypatch, run(launch(), launch(arguments=["float32[8]", "8"])), run(launch()))
    assert [one.verdict for one in two.differences] == [CodeVerdict.GONE, CodeVerdict.SAME]


def test_a_script_that_fails_in_head_alone_is_broken(monkeypatch):
    row = {"kernel": "scale", "failed": "4 bytes outside", "seconds": 1.0}
    broken = compared(monkeypatch, run(launch()), run(launch(), row, failures=("4 bytes outside",)))
    assert (broken.verdict, broken.exit_code) == (CodeVerdict.BROKEN, 1)
    assert "4 bytes outside" in broken.why
    with pytest.raises(NothingToCompare, match="launches no Triton kernel"):
        compared(monkeypatch, run(), run())


KERNEL = """\
import torch, triton
import triton.language as tl

@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

def scale(x):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""

SCRIPT = """\
import torch, triton
from pkg.k import scale

x = torch.randn(1 << 20, device="cuda")
print(triton.testing.do_bench(lambda: scale(x)))
"""


@pytest.mark.slow
def test_a_script_of_a_repository_on_two_commits(tmp_path):
    kit.repository(tmp_path, **{"bench.py": SCRIPT, "pkg/k.py": KERNEL})
    kit.commit(tmp_path, **{"pkg/k.py": KERNEL.replace("    tl.store", "    # in order\n    tl.store")})
    kit.commit(tmp_path, **{"pkg/k.py": KERNEL.replace("2 * tl.load(x + i,", "2 * tl.load(x + (i * 8) % n,")})
    repository = Repository(tmp_path)
    base, comment, head = (
        repository.checkout(f"HEAD~{back}", role) for back, role in ((2, "base"), (1, "head"), (0, "head"))
    )
    request = ScriptRequest(Path("bench.py"), tmp_path / "bench.py")
    same = adopt.compared(request, (base, comment), "gfx942", IsaPolicy(), {})
    assert (same.verdict, len(same.differences)) == (CodeVerdict.SAME, 1), same.warnings
    slower = adopt.compared(request, (base, head), "gfx942", IsaPolicy(), {})
    assert slower.verdict is CodeVerdict.SLOWER
    assert slower.differences[0].kernel == "scale_kernel"
    sentences = [one.sentence for one in slower.differences[0].findings]
    assert any("tl.load(x + (i * 8) % n" in one for one in sentences), sentences
