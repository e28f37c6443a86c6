"""Tables of tuned knobs: read by the names that knobs have now, also where a file has the old ones."""

from kernels._shared.tuning import first_then, read_tuned
from kernels.all_reduce import config as all_reduce
from kernels.reduce_scatter import config as reduce_scatter


def test_a_table_with_the_old_name_of_a_knob_is_read(tmp_path):
    (tmp_path / "tuned.toml").write_text('[sm_90.w4_1MB]\nway = "two_shot"\nprograms = 32\n')
    found = read_tuned(str(tmp_path / "config.py"))
    assert found == {"sm_90": {"w4_1MB": {"algorithm": "two_shot", "programs": 32}}}


def test_the_tables_name_the_knob_as_the_backends_do():
    for config in (all_reduce, reduce_scatter):
        for knobs in config.TUNED["sm_90"].values():
            assert {"algorithm", "way"} & set(knobs) == {"algorithm"}


def test_candidates_start_with_the_choice_and_do_not_repeat():
    one, two = {"a": 1}, {"a": 2}
    assert first_then(two, [one, two, one]) == [two, one]
