"""Building again: what is taken over from the site that stands, and what is made anew; texts that no page can carry."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards import build, draft
from dashboards.values import script_json
from tests.dashboards import made_site, synthetic


@pytest.fixture(autouse=True)
def _own_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the views, which are made at every build."""
    monkeypatch.setattr(build, "VIEWS", ())


def whole(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kernels whose blocks were made, not taken over."""
    found: list[str] = []
    make = build.kernel_block

    def noted(rows: Any, commits: Any) -> Any:
        found.append(rows["kernel"][0])
        return make(rows, commits)

    monkeypatch.setattr(build, "kernel_block", noted)
    return found


def grown() -> tuple[pd.DataFrame, pd.DataFrame]:
    """A history, and the same with one more commit of softmax on one machine."""
    frame = synthetic.lively(6)
    last = frame["commit"] == frame.loc[frame["date"].idxmax(), "commit"]
    new = (frame["machine"] == "h200x2-1a2b3c4d") & (frame["kernel"] == "softmax")
    return frame[~last], frame[~last | new]


def test_building_again_gives_the_same_bytes_as_building_afresh(tmp_path: Path, made: list[str]) -> None:
    before, after = grown()
    made_site.build_frame(before, tmp_path / "site")
    made.clear()
    made_site.build_frame(after, tmp_path / "site")
    assert made == ["all_gather", "gemm", "gemm_all_scatter", "rms_norm", "softmax"], "on one machine only"
    made.clear()
    made_site.build_frame(after, tmp_path / "afresh")
    assert len(made) == 10
    assert whole(tmp_path / "site") == whole(tmp_path / "afresh")
    made.clear()
    made_site.build_frame(after, tmp_path / "site")
    assert made == []
    assert whole(tmp_path / "site") == whole(tmp_path / "afresh")


def test_a_part_that_was_damaged_is_made_again(tmp_path: Path, made: list[str]) -> None:
    frame = synthetic.history(2)
    site = made_site.build_frame(frame, tmp_path / "site")
    good = whole(site)
    (site / "data/h200x2-1a2b3c4d/0/kernel-gemm.js").write_text("changed by hand")
    (site / "data/h200x2-1a2b3c4d/kernel-softmax.csv").unlink()
    made.clear()
    assert whole(made_site.build_frame(frame, site)) == good
    assert made == ["all_gather", "gemm", "gemm_all_scatter", "rms_norm", "softmax"]


@pytest.mark.parametrize("said", ["", "[]", '{"a": 1}', '{"a": {"made_of": 1}}', "\0"])
def test_an_odd_list_of_parts_only_costs_time(tmp_path: Path, said: str) -> None:
    frame = synthetic.history(1, synthetic.CASES[:1])
    site = made_site.build_frame(frame, tmp_path / "site")
    good = whole(site)
    (site / draft.PARTS).write_text(said)
    assert whole(made_site.build_frame(frame, site)) == good


def test_other_code_makes_everything_again(tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    frame = synthetic.history(1, synthetic.CASES[:1])
    made_site.build_frame(frame, tmp_path / "site")
    monkeypatch.setattr(build, "_code", lambda: "other")
    made.clear()
    made_site.build_frame(frame, tmp_path / "site")
    assert len(made) == 2


# ---- texts ----------------------------------------------------------------------------------------------------------

ODD = "a\ud800b\0c"


def test_lone_surrogates_and_nul_in_any_text_do_not_stop_the_site(tmp_path: Path) -> None:
    frame = synthetic.history(2, synthetic.CASES[:2], machines=["h200x2-1a2b3c4d"])
    frame = synthetic.spoil(frame, frame["backend"] == "gluon", "wrong", "")
    for column in ("machine", "device", "market_name", "env", "kernel", "backend", "case", "tier", "dtype", "why"):
        frame[column] = pd.Series([f"{text}{ODD}" for text in frame[column]], dtype=object)
    site = made_site.build_frame(frame, tmp_path / "site", problems=[ODD])
    for name, content in whole(site).items():
        if name.startswith("static/"):
            continue
        assert b"\0" not in content, name
        assert b"\\u0000" not in content, name
        assert b"\\ud800" not in content, name
    assert len(list((site / "kernels").iterdir())) == 1


@pytest.mark.parametrize("odd", [ODD, "a\\\\u0000", "a\0"])
def test_json_for_a_script_is_json(odd: str) -> None:
    """With lone surrogates and without, which take different ways."""
    kept = ["é<&>\u2028\u2029", 1, 2.5, None, True, "😀", "\\u0000", "\\"]
    value = {"<&>": [*kept, odd], "line": np.array([1.5, np.nan, 1e-7]), "one": np.int64(3), "tuple": (1, "x")}
    text = script_json(value)
    texts = [*kept, odd.replace("\ud800", "\ufffd").replace("\0", "\ufffd")]
    assert json.loads(text) == {"<&>": texts, "line": [1.5, None, 1e-7], "one": 3, "tuple": [1, "x"]}
    assert not set("<>&\u2028\u2029") & set(text.decode())


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS


@given(st.recursive(LEAVES, st.lists, max_leaves=10))
def test_json_for_a_script_is_what_the_standard_library_reads(value: Any) -> None:
    assert json.loads(script_json(value)) == json.loads(json.dumps(value))


def test_names_that_every_object_has_are_only_values() -> None:
    """A kernel, case or backend of such a name must not become the key of an object."""
    names = ["constructor", "toString", "__proto__"]
    made = [synthetic.history(2, [synthetic.gemm(n, 64, 64, 64, kernel=n)], backends=(n,)) for n in names]
    files = made_site.site_files(pd.concat(made, ignore_index=True))
    for path, content in files.items():
        if path.startswith("data/") and path.endswith(".js"):
            keys = set(re.findall(rb'"([^"]*)":', content))
            assert not keys & {name.encode() for name in names}, path
    assert len([path for path in files if path.startswith("kernels/")]) == len(names)
