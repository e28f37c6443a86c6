"""Result files: what is read is what was written, writer and reader agree, and a broken file is named by its field."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks.isa.__main__ import MEANING
from ci.isa.compiled import AMD_ONLY, NVIDIA_ONLY, IsaError, Metrics, parse
from ci.isa.rules import _OTHER_METRICS
from tests.ci.isa.documents import METRICS, REMOTE, document_json, entry_json

RECORDED = sorted((Path(__file__).resolve().parents[2] / "recordings" / "isa").glob("*.json"))


def read(*entries, **head):
    return parse(json.dumps(document_json(*entries) | head), "isa.json")


@pytest.mark.parametrize("file", RECORDED, ids=lambda path: path.stem)
def test_every_recorded_metric_is_read(file):
    written = json.loads(file.read_text())
    tree = parse(file.read_text(), file.name)
    assert len(tree.entries) == len(written["entries"])
    for entry, raw in zip(tree.entries, written["entries"], strict=True):
        found = dataclasses.asdict(entry.emitted.metrics)
        found["loop"] = found["loop"] or {}
        assert found == dict.fromkeys(found) | raw["metrics"]


def test_writer_and_reader_know_the_same_metrics_in_the_same_order():
    assert [field.name for field in dataclasses.fields(Metrics)] == list(MEANING)
    assert set(NVIDIA_ONLY) | set(AMD_ONLY) <= set(MEANING)


def test_every_metric_is_shown_by_a_rule_or_follows_from_one():
    """A new metric needs a place: in _OTHER_METRICS, or in a rule of its own and here."""
    in_words = {
        *("vgpr_spills", "scratch_bytes", "scratch_ops_in_loops", "matrix", "occupancy", "loop"),
        *("instructions", "mix"),
        *("load_widths", "store_widths", "store_names", "remote_store_widths", "remote_store_names"),
        *("remote_store_bytes", "remote_store_bytes_in_loops", "heap_base_loads", "heap_base_loads_in_loops"),
        *("remote_store_drains", "remote_store_drains_between"),
    }
    following = {
        *("bytes_per_load", "bytes_per_store", "bytes_per_remote_store", "subdword_remote_stores"),
        *("occupancy_by_registers", "occupancy_by_lds", "lds_limit", "loops"),
    }
    assert set(_OTHER_METRICS) | in_words | following == set(MEANING)


def test_foreign_text_cannot_steer_a_terminal():
    (entry,) = read(entry_json(status="failed", why="\x1b[31mred\x1b[0m\nand \ud800 half")).entries
    assert entry.why == "[31mred[0m and half"


WRONG = {
    "vgpr": ('vgpr is "two"; allowed: a whole number from 0 ', "two"),
    "lds_bytes": ("lds_bytes is true; allowed: a whole number", True),
    "matrix": (r'matrix is \["v_mfma"\]; allowed: an object', ["v_mfma"]),
    "load_widths": ('load_widths is "wide"; allowed: bytes per lane, such as 16', {"wide": 3}),
    "bytes_per_load": (r"bytes_per_load is NaN; allowed: a number from 0 to 9.0072e\+15", float("nan")),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_metric_is_named_with_its_entry(name):
    said, value = WRONG[name]
    with pytest.raises(IsaError, match=rf"isa\.json: entry 2 \(gemm/triton on gfx942\)\.metrics\.({said})"):
        read(entry_json(), entry_json(**{name: value}))


@pytest.mark.parametrize("name", [name for name in METRICS if not name.startswith(("loop", "mix"))])
def test_a_missing_metric_is_named(name):
    with pytest.raises(IsaError, match=r"metrics\.\w+ is null; allowed: a value; it is missing"):
        read(entry_json(without=(name,), **({} if name in REMOTE else REMOTE)))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("kernel", "a\x1b[0m", "kernel is .*; allowed: printable text"),
        ("label", "x" * 2000, r'label is "x{56}\.\.\.; allowed: printable text of at most 1000 characters'),
        ("cases", "one", 'cases is "one"; allowed: a list'),
        ("status", "good", 'status is "good"; allowed: ok, failed, refused, unsupported'),
        ("asm", "../../secret", "asm is .*; allowed: the name of a file in the cache"),
        ("will_not_load", False, "will_not_load is false; allowed: text"),
    ],
)
def test_a_wrong_field_of_an_entry_is_named(field, value, said):
    with pytest.raises(IsaError, match=rf"isa\.json: entry 1.*\.{said}"):
        read(entry_json() | {field: value})


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ({"entries": {}}, "entries is {}; allowed: a list"),
        ({"arches": None}, "arches is null; allowed: a list"),
        ({"broken": [{"module": "x"}]}, r"broken\[0\]\.why is null; allowed: a value; it is missing"),
    ],
)
def test_a_broken_head_is_named(head, said):
    with pytest.raises(IsaError, match=rf"isa\.json(\.|: ){said}"):
        read(**head)
