"""What of the objects that the harness measures with is another one now, and what inputs and comparisons hold."""

import pytest
import torch

from benchmarks.worker import arms, bound, guards
from benchmarks.worker.arms import _marks, _words
from benchmarks.worker.guards import WORDS


def test_flushes_that_take_less_time_than_they_can_are_told():
    fast, usual_s = [1e-6] * guards.FEWEST, 1e-3
    assert guards.unflushed(fast, usual_s).startswith("the caches are not flushed between calls: a flush takes 1 us")
    for flushes_s, usual in ((fast, 0.0), (fast[1:], usual_s), ([usual_s] * guards.FEWEST, usual_s)):
        assert guards.unflushed(flushes_s, usual) == ""


class Root:
    def inherited(self):
        return 1


class Leaf(Root):
    def own(self):
        return 2


class Elsewhere(Root):
    pass


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.setattr(bound, "_WATCHED", ((Leaf, "Leaf", ("own", "inherited")),))
    return bound.Originals()


def other(self):
    return 3


def test_nothing_is_replaced_as_long_as_nobody_does(watched):
    assert watched.replaced() == []


@pytest.mark.parametrize("owner", [Leaf, Root])
@pytest.mark.parametrize("attribute", ["own", "inherited"])
def test_a_name_is_seen_wherever_it_is_put(watched, monkeypatch, owner, attribute):
    hidden = owner is Root and attribute == "own"
    monkeypatch.setattr(owner, attribute, other, raising=False)
    assert watched.replaced() == ([] if hidden else [f"Leaf.{attribute}"])


def test_another_body_is_seen(watched, monkeypatch):
    monkeypatch.setattr(Leaf.own, "__code__", other.__code__)
    assert watched.replaced() == ["Leaf.own"]


def test_other_bases_are_seen(watched):
    Leaf.__bases__ = (Elsewhere,)
    try:
        assert watched.replaced() == ["the bases of Leaf"]
    finally:
        Leaf.__bases__ = (Root,)


def test_what_was_deleted_is_seen(watched, monkeypatch):
    monkeypatch.delattr(Leaf, "own")
    assert watched.replaced() == ["Leaf.own"]


# By which a changed input is found.


BYTES = torch.arange(48, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("tensor", "kind"),
    [
        (BYTES, torch.int64),
        (BYTES[8:], torch.int64),
        (BYTES[4:], torch.int32),
        (BYTES[8:20], torch.int32),
        (BYTES[2:], torch.int16),
        (BYTES[1:], torch.uint8),
        (BYTES.view(torch.float16).reshape(4, 6), torch.int64),
        (BYTES.view(torch.float16).reshape(4, 6).T, torch.int64),
        (BYTES.view(torch.float8_e4m3fn)[:47], torch.uint8),
        (torch.zeros(0, dtype=torch.float16), torch.int64),
        (torch.tensor(1.5), torch.int32),
    ],
)
def test_bits_are_read_as_words_as_wide_as_they_can_be(tensor, kind):
    words = _words(tensor)
    assert words.dtype is kind
    assert words.nbytes == tensor.nbytes
    assert WORDS[words.element_size()] is kind


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.int64])
def test_one_changed_bit_is_seen_and_by_its_copy_and_name(dtype):
    copies = [{"x": torch.zeros(6, dtype=dtype), "y": torch.ones(3, dtype=dtype)} for _ in range(2)]
    before = _marks([*copies, None])
    assert _marks([*copies, None]) == before
    copies[1]["y"].view(torch.uint8)[-1] ^= 1
    after = _marks([*copies, None])
    assert [(copy, name) for copy in range(2) for name in "xy" if before[copy][name] != after[copy][name]] == [(1, "y")]
    assert after[2] == {}


def test_a_comparison_that_changes_is_seen_on_two_tensors_that_did_not(monkeypatch):
    pair = guards.KnownPair(arms.harness_numerics(), "cpu")
    assert pair.disturbed() == ""
    monkeypatch.setattr(torch.linalg, "vector_norm", lambda tensor, dtype: torch.zeros((), dtype=dtype))
    assert pair.disturbed() == guards.COMPARED_OTHERWISE
