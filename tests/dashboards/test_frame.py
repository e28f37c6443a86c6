"""Machines and series of the records, and what of them may be compared."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

from ci.report import words
from dashboards.frame import change, lanes
from tests.dashboards import node, synthetic


def paired(ratios, **columns):
    """A lane of one GEMM by triton whose ratios to blas were measured in pairs."""
    frame = synthetic.with_times([1.0 / one for one in ratios], [1.0] * len(ratios))
    own = frame["backend"] == "triton"
    for name, values in {"paired_ratio": ratios, "paired_with": "blas", **columns}.items():
        frame.loc[own, name] = values
    for end, factor in (("low", 0.999), ("high", 1.001)):
        frame.loc[own, f"paired_{end}"] = np.array(ratios) * factor
    return lanes(frame)[0]


def test_every_series_is_a_slice_in_the_order_of_commits():
    frame = synthetic.lively(20).sample(frac=1, random_state=1)
    for lane in lanes(frame):
        rows, known = lane.columns, frame[frame["machine"] == lane.machine]
        assert len(rows["at"]) == len(known)
        for one in lane.series:
            own = known[
                (known["kernel"] == one.kernel) & (known["case"] == one.case) & (known["backend"] == one.backend)
            ]
            assert (np.diff(rows["at"][one.rows]) > 0).all()
            assert [lane.commits[at].hash for at in rows["at"][one.rows]] == own.sort_values("date")["commit"].tolist()
            assert rows["seconds"][one.rows].tolist() == pytest.approx(
                own.sort_values("date")["seconds"].tolist(), nan_ok=True
            )


def test_a_commit_under_two_environments_gives_two_lanes():
    frame = synthetic.one_case(3)
    both = pd.concat([frame, frame.assign(env="py3.12-triton3.8.0")])
    assert [lane.env for lane in lanes(both)] == ["py3.12-torch2.11.0-triton3.6.0", "py3.12-triton3.8.0"]
    assert [lane.env for lane in lanes(frame)] == [None]


def test_the_change_is_the_quotient_of_two_ratios():
    lane = paired([1.0] * 12 + [0.9])
    found = lane.recent(next(one for one in lane.series if not one.baseline))
    assert found is not None
    assert found.value == pytest.approx(1 / 0.9 - 1)
    half = math.hypot(*[math.log(1.001 / 0.999) / 2] * 2)
    assert (found.low, found.high) == pytest.approx((math.exp(-half) / 0.9 - 1, math.exp(half) / 0.9 - 1))


@pytest.mark.parametrize("column", ["yardstick", "paired_with"])
def test_nothing_is_told_across_definitions_and_libraries(column):
    lane = paired([1.0, 1.0, 1.0, 0.8], **{column: ["a", "a", "a", "b"]})
    assert lane.recent(next(one for one in lane.series if not one.baseline)) is None


def test_the_page_computes_the_same_change():
    pairs = [((1.0, 0.99, 1.02), (0.9, 0.88, 0.93)), ((2.0, 1.9, 2.2), (2.0, 1.99, 2.01))]
    script = 'Ridgeline.known = value => typeof value === "number" && Number.isFinite(value);\n'
    shown = node.computed("compare.js", "Ridgeline", "input.map(([a, b]) => R.change(a, b))", pairs, script)
    assert json.loads(json.dumps(shown)) == [pytest.approx(list(change(*pair) or ())) for pair in pairs]


def test_the_page_writes_changes_as_reports_do():
    shares = [0.0396, -0.0255, 0.0, -0.000049, 0.0994, -0.1234, 0.99949, -0.99951, 12.347]
    pairs = list(zip(shares, [share + 0.02 for share in shares], strict=True))
    assert node.computed("format.js", "Ridgeline", "input.map(share => R.signed(share))", shares) == [
        words.percent(1 + share) for share in shares
    ]
    assert node.computed("format.js", "Ridgeline", "input.map(ends => R.interval(...ends))", pairs) == [
        words.interval(1 + low, 1 + high) for low, high in pairs
    ]
