"""What is handed over is what was there, bit by bit; the referee says what a comparison in one's own process says."""

from __future__ import annotations

import os

import pytest
import torch

from benchmarks.worker.arms import harness_numerics
from benchmarks.worker.referee.handing import hand_over, taken
from benchmarks.worker.referee.judging import Truths

TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.int64, torch.bool)
TOLERANCE = {"norm": 1e-3, "peak": 1e-2}


def bits(tensor: torch.Tensor) -> list[int]:
    """An obvious oracle: the bytes, one by one."""
    return tensor.contiguous().flatten().view(torch.uint8).tolist()


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_arrives_bit_by_bit(tmp_path, kind):
    tensor = torch.randint(0, 2 if kind is torch.bool else 127, (3, 5, 7)).to(kind)
    note = hand_over(tensor, str(tmp_path / "a"))
    arrived = taken(note)
    assert (arrived.dtype, arrived.shape) == (kind, tensor.shape)
    assert bits(arrived) == bits(tensor)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "output",
    [
        torch.arange(24.0).reshape(4, 6).t(),
        torch.arange(24.0)[3::5],
        torch.tensor(2.5),
        torch.empty(0, 4),
        torch.tensor([float("nan"), -0.0, float("inf")]),
        torch.ones(3, requires_grad=True),
        (torch.arange(5, dtype=torch.int8), torch.empty(0), torch.arange(7.0)),
        [torch.arange(3.0)],
    ],
    ids=["transposed", "strided", "scalar", "empty", "odd values", "with gradient", "tuple", "list of one"],
)
def test_every_form_arrives(tmp_path, output):
    arrived = taken(hand_over(output, str(tmp_path / "a")))
    parts = output if isinstance(output, (tuple, list)) else (output,)
    found = arrived if isinstance(arrived, tuple) else (arrived,)
    assert isinstance(arrived, tuple) == isinstance(output, (tuple, list))
    assert [bits(one.detach()) for one in parts] == [bits(one) for one in found]
    assert [one.shape for one in parts] == [one.shape for one in found]


def test_what_has_been_taken_is_nobody_elses(tmp_path):
    """The writer may keep the file open, and its tensor changes."""
    tensor = torch.ones(4)
    note = hand_over(tensor, str(tmp_path / "a"))
    arrived = taken(note)
    tensor.zero_()
    assert arrived.tolist() == [1.0] * 4


def test_a_torn_file_is_an_error_and_goes(tmp_path):
    note = hand_over(torch.ones(1000), str(tmp_path / "a"))
    os.truncate(note["file"], 100)
    with pytest.raises(RuntimeError):
        taken(note)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    (tmp_path / "a").write_text("of somebody else")
    with pytest.raises(FileExistsError):
        hand_over(torch.ones(3), str(tmp_path / "a"))


def test_a_changed_umask_keeps_nothing_from_the_referee(tmp_path):
    before = os.umask(0o777)
    try:
        note = hand_over(torch.ones(3), str(tmp_path / "a"))
    finally:
        os.umask(before)
    assert os.stat(note["file"]).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("error", [0.0, 1e-5, 1.0, float("nan")])
def test_it_says_what_a_comparison_here_says(tmp_path, error):
    numerics, expected = harness_numerics(), torch.randn(100, generator=torch.Generator().manual_seed(0))
    out = expected.clone()
    out[17] += error
    judge = Truths(numerics)
    judge.expect("k", [hand_over(expected, str(tmp_path / "truth"))], TOLERANCE)
    said = judge.compare("k", [hand_over(out, str(tmp_path / "out"))], [0])
    here = numerics.compare(out, expected, numerics.Tolerance(**TOLERANCE))
    assert (said["norm"], said["peak"], said["why"]) == (here.norm, here.peak, here.why)
    judge.forget(["k"])
    with pytest.raises(KeyError):
        judge.compare("k", [], [])
