"""A GPU that torch does not see is said aloud; nothing is measured on the CPU in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import doctor
from benchmarks.coordinator import fingerprint
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.trial import measure
from benchmarks.plan import Selection, UsageError
from benchmarks.verify import verify
from tests.benchmarks.conftest import TOY

CPU_TORCH = {"torch": "2.13.0+cpu", "hip": None, "cuda": None}


@pytest.fixture(params=["kfd", "nvidia0"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a machine with a GPU's device file."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / request.param).touch()
    for name in fingerprint.HIDING:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_wrong_torch_is_named_with_the_next_step(root: Path) -> None:
    said = fingerprint.unseen_gpu([], CPU_TORCH, root)
    assert "torch 2.13.0+cpu sees none (hip None, cuda None)" in said
    assert str(root / "dev") in said
    assert "make PYTHON=" in said
    missing = {"torch": None, "torch_missing": "ModuleNotFoundError: No module named 'torch'"}
    assert "torch cannot be imported (ModuleNotFoundError" in fingerprint.unseen_gpu([], missing, root)


def test_a_gpu_that_is_seen_absent_or_hidden_is_no_fault(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fingerprint.unseen_gpu([{"name": "MI300X"}], CPU_TORCH, root) == ""
    assert fingerprint.unseen_gpu([], CPU_TORCH, root / "none") == ""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    assert fingerprint.unseen_gpu([], CPU_TORCH, root) == ""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    assert fingerprint.unseen_gpu([], CPU_TORCH, root) != ""


@pytest.mark.slow
def test_nothing_is_measured_or_verified_and_the_doctor_says_so(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fingerprint.unseen_gpu
    monkeypatch.setattr(fingerprint, "unseen_gpu", lambda found, environment: real(found, environment, root))
    checkout = Checkout("head", TOY)
    with pytest.raises(UsageError, match="this machine has a GPU"):
        next(measure(["pairs"], [checkout]))
    with pytest.raises(UsageError, match="this machine has a GPU"):
        next(verify(["pairs"], checkout, tmp_path / "checks.jsonl", Selection()))
    kinds = {problem["kind"]: problem["level"] for problem in doctor.examine(TOY)["problems"]}
    assert kinds["unseen_gpu"] == "error"
