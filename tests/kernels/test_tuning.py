"""Tables of tuned knobs: read by the names that knobs have now, also where a file has the old ones."""

from __future__ import annotations

import datetime
import inspect
import re

import pytest

from kernels._shared.tuning import ORIGIN, Published, fitting, read_published, read_tuned
from kernels.gemm import config as gemm_config
from kernels.gemm import gemm
from kernels.gemm_all_scatter import config as scatter_config
from kernels.gemm_all_scatter import gemm_all_scatter
from kernels.grouped_gemm import config as grouped_config
from kernels.grouped_gemm import grouped_gemm_dgrad, grouped_gemm_forward, grouped_gemm_wgrad
from kernels.registry import discover
from kernels.spec import Place

KERNELS = discover().kernels


def test_a_table_with_the_old_name_of_a_knob_is_read(tmp_path):
    (tmp_path / "tuned.toml").write_text('[sm_90.w4_1MB]\nway = "two_shot"\nprograms = 32\n')
    found = read_tuned(str(tmp_path / "config.py"))
    assert found == {"sm_90": {"w4_1MB": {"algorithm": "two_shot", "programs": 32}}}


def test_provenance_is_no_knob(tmp_path):
    (tmp_path / "tuned.toml").write_text(
        "[sm_90.m64]\nprograms = 32\n[sm_90.m64.confirmed]\nratio = 0.9\n[sm_90.m64.confirmed.code]\nwinner = 'ab'\n"
    )
    assert read_tuned(str(tmp_path / "config.py")) == {"sm_90": {"m64": {"programs": 32}}}


def test_an_entry_of_one_backend_of_the_table_is_not_that_of_another(tmp_path, monkeypatch):
    kernel = KERNELS["moe_gemm2_mxfp4"]
    case = kernel.cases[3].at(Place(arch="sm_90", compute_units=132))
    place = kernel.backends["triton_reduce"].tuned
    monkeypatch.setitem(place.rule.__globals__["TUNED"], "triton_reduce", {"sm_90": {place.key(case): {"tiles": 7}}})
    assert kernel.backends["triton_reduce"].config(case, "sm_90") == {"tiles": 7}
    assert kernel.backends["triton_atomic"].config(case, "sm_90") == place.rule(case, "sm_90")


# Published points: each says where it is from, names knobs that we have, and is tried before what we would guess.


TABLES = {
    "gemm": (gemm_config.PUBLISHED, gemm),
    "gemm_all_scatter": (scatter_config.PUBLISHED, gemm_all_scatter),
    "grouped_gemm": (grouped_config.PUBLISHED, grouped_gemm_forward),
}
PRODUCTS = {"forward": grouped_gemm_forward, "dgrad": grouped_gemm_dgrad, "wgrad": grouped_gemm_wgrad}


@pytest.mark.parametrize("name", TABLES)
def test_every_point_has_a_source_and_knobs_of_ours(name):
    points, kernel = TABLES[name]
    known = set(inspect.signature(kernel.backends["triton"].build).parameters)
    assert {arch for point in points for arch in point.arches} == {"gfx942", "gfx950"}
    for point in points:
        assert point.origin == ORIGIN
        assert re.fullmatch(r"[\w-]+/[\w-]+ [\w/.-]+ at [0-9a-f]{8}", point.source), point
        assert datetime.date(2025, 1, 1) < point.date < datetime.date(2026, 11, 22), point
        assert set(point.knobs) <= known, (point, set(point.knobs) - known)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_published_points_come_right_after_the_present_choice(arch):
    for kernel, config in ((gemm, gemm_config), (gemm_all_scatter, scatter_config)):
        for case in kernel.cases:
            tried, expected = config.candidates(case, arch), fitting(config.PUBLISHED, arch, case.M)
            assert tried[0] == config.config(case, arch)
            assert expected, case.name
            for point, knobs in zip(expected, tried[1:], strict=False):
                assert point.items() <= knobs.items(), (case.name, point, knobs)
    for product, kernel in PRODUCTS.items():
        tried = grouped_config.candidates(kernel.cases[0], arch, product)
        assert fitting(grouped_config.PUBLISHED, arch, use=product)[0].items() <= tried[1].items()


def test_a_point_is_for_some_rows_and_one_use():
    point = Published(("gfx942",), "o/r f at 1", datetime.date(2026, 1, 1), {"block_m": 64}, 17, 64, "wgrad")
    assert [rows for rows in (16, 17, 64, 65) if fitting([point], "gfx942", rows, "wgrad")] == [17, 64]
    assert not fitting([point], "gfx950", 20, "wgrad") + fitting([point], "gfx942", 20, "forward")


GOOD = 'origin = "published"\narches = ["gfx942"]\nsource = "o/r f at 1"\ndate = 2026-01-01\nknobs = { block_m = 64 }\n'


@pytest.mark.parametrize(
    ("line", "changed", "says"),
    [
        ('origin = "published"', 'origin = "measured"', "origin is 'measured'; this file holds 'published' points"),
        ('source = "o/r f at 1"', "", "source is missing; say where and when"),
        ("date = 2026-01-01", 'date = "in January"', "date is missing"),
        ("knobs = { block_m = 64 }", "knobs = {}", "knobs is missing"),
    ],
)
def test_a_point_that_does_not_say_where_it_is_from_is_refused(tmp_path, line, changed, says):
    file = tmp_path / "published.toml"
    file.write_text(f"[[points]]\n{GOOD}")
    assert read_published(str(tmp_path / "config.py"))[0].knobs == {"block_m": 64}
    file.write_text(f"[[points]]\n{GOOD.replace(line, changed)}")
    with pytest.raises(ValueError, match=f"published.toml: point 1: {says}"):
        read_published(str(tmp_path / "config.py"))
