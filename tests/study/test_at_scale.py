"""The study of a large history: its points, and that both queries answer what numpy does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from tests.study.history import at_scale


def test_both_queries_answer(tmp_path: Path) -> None:
    assert at_scale.main([str(tmp_path), "--make", "0.02"]).startswith("18,000 points")
    frame = pd.read_parquet(tmp_path)
    assert len(frame) == len(frame.drop_duplicates(["machine", "kernel", "commit", "backend", "case"]))
    asked = at_scale.ask(tmp_path, 1, "500MB")
    one = frame.query("machine == 'mi325x' and kernel == 'kernel_03' and backend == 'triton' and case == 'case_042'")
    assert [answer.rows for answer in asked] == [len(one), len(at_scale.MACHINES) * len(at_scale.KERNELS)]
    wide = frame.pivot_table("seconds", ["commit", "case"], "backend", observed=True)
    ratio = np.exp(np.log(wide["hipblaslt"] / wide["triton"]).mean())
    assert abs(ratio - 1.1) < 0.01
    assert "at most" in at_scale.main([str(tmp_path), "--threads", "1"])
