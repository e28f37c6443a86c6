"""A tree that has not changed starts no compiling process, and nothing but the same result is ever taken for it."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from benchmarks.isa import __main__ as program
from benchmarks.isa import kept
from benchmarks.isa.pool import Choice, CompileSetting, Limits

SAMPLES = Path(__file__).parent / "tree"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The sample kernels, to be changed."""
    return Path(shutil.copytree(SAMPLES, tmp_path / "tree", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture
def written(tree: Path, tmp_path: Path) -> Path:
    """The result of compiling one sample for the first time, and the cache beside it."""
    run(tree, tmp_path / "first.json")
    return tmp_path / "first.json"


def run(tree: Path, out: Path, *more: str) -> int:
    """Compile one sample kernel into a result file, with the cache beside the tree."""
    cache = tree.parent / "cache"
    wanted = ["--kernel", "sample_all_gather", "--arch", "gfx942", "--progress", "none"]
    return program.main(["metrics", "--tree", str(tree), "--cache", str(cache), "--out", str(out), *wanted, *more])


def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nothing may be compiled."""
    monkeypatch.setattr(program, "compile_all", lambda *_: pytest.fail("a compiling process was started"))


@pytest.mark.slow
def test_an_unchanged_tree_starts_nothing_and_gives_the_same_bytes(tree, written, tmp_path, monkeypatch):
    assert json.loads(written.read_text())["entries"][0]["status"] == "ok"
    refuse(monkeypatch)
    assert run(tree, tmp_path / "second.json") == program.ALL
    assert (tmp_path / "second.json").read_bytes() == written.read_bytes()


def key(tree: Path, cache: Path, **changed: object) -> str:
    """The key of a sample's result, something changed."""
    setting = CompileSetting(tree, cache, limits=Limits())
    return kept.tree_key(["gfx942"], Choice(kernels=("sample_all_gather",)), dataclasses.replace(setting, **changed))


def test_whatever_decides_the_result_is_in_its_key(tree, tmp_path, monkeypatch):
    before = key(tree, tmp_path)
    assert key(Path(shutil.copytree(tree, tmp_path / "elsewhere")), tmp_path) == before  # a path decides nothing
    assert key(tree, tmp_path, compute_units=38) != before
    other_triton = tmp_path / "packages"
    (other_triton / "triton-3.7.0.dist-info").mkdir(parents=True)
    assert key(tree, tmp_path, packages=(other_triton,)) != before
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    assert key(tree, tmp_path) == before  # compiling processes do not see it
    file = next(tree.rglob("*.py"))
    file.write_text(file.read_text() + "\n# a remark\n")
    assert key(tree, tmp_path) != before


def test_another_python_is_always_asked(tree, tmp_path):
    assert key(tree, tmp_path, python="/somewhere/else/python3") == ""


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["torn", "text gone"])
def test_what_cannot_be_read_whole_is_compiled_again(tree, written, tmp_path, damage):
    cache = tree.parent / "cache"
    if damage == "torn":
        one = next(cache.glob("tree-*.json"))
        one.write_text(one.read_text()[:100])
    else:
        next(cache.glob("*.s")).unlink()
    assert run(tree, tmp_path / "again.json") == program.ALL
    assert (tmp_path / "again.json").read_bytes() == written.read_bytes()


@dataclasses.dataclass
class Finished:
    """A run as compile_all leaves it."""

    records: dict
    listing: dict = dataclasses.field(default_factory=lambda: {"units": [{}], "broken": []})
    failure: str = ""
    arch: str = "gfx942"


OK = {"status": "ok", "key": "k", "asm": None}


@pytest.mark.parametrize(
    ("run", "stays"),
    [
        (Finished({0: OK}), True),
        (Finished({0: {"status": "refused", "why": "no such option"}}), True),
        (Finished({0: {"status": "failed", "why": "kept with its content", "key": "k"}}), True),
        (Finished({0: {"status": "failed", "why": "it took longer than 120 s and was stopped"}}), False),
        (Finished({}), False),
        (Finished({0: OK}, {"units": [{}], "broken": [{"module": "m", "why": "no torch"}]}), False),
        (Finished({0: OK}, failure="the kernels could not be listed"), False),
    ],
)
def test_only_what_would_end_so_again_is_kept(tmp_path, run, stays):
    kept.store(tmp_path, "key", [run])
    assert (kept.load(tmp_path, "key") is not None) == stays


def test_the_last_used_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "MOST", 2)
    for name in "abc":
        kept.store(tmp_path, name, [Finished({0: OK})])
    assert len(list(tmp_path.glob("tree-*.json"))) == 2
