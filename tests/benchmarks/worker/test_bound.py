"""What of the objects that the harness measures with is another one now."""

import pytest

from benchmarks.worker import bound


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
