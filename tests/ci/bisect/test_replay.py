"""Replay files that name their row, and what is refused in them."""

from __future__ import annotations

import json
import math

import pytest

from ci.bisect import outcomes
from ci.bisect.axes import BisectError
from tests.ci.bisect.toys import replay_lines

NAMES = ["v1", "v2", "v3"]


def written(path, lines):
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


def test_a_replay_file_is_a_row_and_its_trials_in_order(tmp_path) -> None:
    file = written(tmp_path / "r.jsonl", replay_lines(NAMES, [("v1", "v3", 1.02), ("v2", "v1", 0.5)]))
    assert outcomes.tells_its_places(file)
    found = outcomes.of_file(file)
    assert [place.name for place in found.places] == NAMES
    assert [(one.low, one.high, one.shift) for one in found.outcomes] == [
        (0, 2, pytest.approx(math.log(1.02))),
        (0, 1, pytest.approx(math.log(2))),
    ]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"places": ["v1"]}, "places is ['v1']; allowed: a list of at least two different names"),
        ({"places": ["v1", "v1"]}, "allowed: a list of at least two different names"),
        ({"base": "v9"}, "base is 'v9'; allowed: one of the places of line 1"),
        ({"base": "v3"}, "base and head are both 'v3'"),
        ({"cases": {}}, "cases is {}; allowed: an object with a case at least"),
        ({"cases": {"a": {"base": [1.0, 1.0]}}}, "case 'a': head is None; allowed: at least two finite times above 0"),
        ({"cases": {"a": {"base": [1.0, -1.0], "head": [1, 1]}}}, "base is [1.0, -1.0]"),
        ({"cases": {"a": {"base": [1.0] * 3, "head": [1, 1]}}}, "base has 3 samples and head 2"),
    ],
)
def test_a_wrong_line_is_refused_by_its_value(tmp_path, changed, said) -> None:
    (line,) = replay_lines(NAMES, [("v1", "v3", 1.02)])
    file = written(tmp_path / "r.jsonl", [{**line, **changed}])
    with pytest.raises(BisectError) as error:
        outcomes.of_file(file)
    assert said in str(error.value)
    assert f"{file}:1" in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"), [("", "is empty"), ("{", ":1: not JSON"), ("[]", "must be an object of cases")]
)
def test_a_file_that_is_none_is_refused(tmp_path, content, said) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(content)
    with pytest.raises(BisectError, match=said):
        outcomes.tells_its_places(file)
    with pytest.raises(BisectError, match="cannot be read"):
        outcomes.tells_its_places(tmp_path / "absent")
