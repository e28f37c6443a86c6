"""Readers of benchmark programs: recorded files of each tool, and what is wrong with them in the wild."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from benchmarks.programs.reader import RATES, ReaderError, declared, fitting, read, readers

FILES = Path(__file__).parents[2] / "recordings" / "programs"
KNOWN = readers()


def rows(text, reads="", unit=""):
    """By case and backend: the status, and the samples in the unit of the file."""
    reader = KNOWN[reads] if reads else fitting(text, KNOWN)
    return {(row.case, row.backend): (row.status, row.samples) for row in read(text, reader, unit).rows}


RECORDED = {
    "google_benchmark.json": ("google-benchmark", "BM_Copy\u22154096\u22158", "ok", (100.0, 102.0, 104.0), "ns"),
    "hipblaslt_bench.txt": (
        "hipblaslt-bench", "N_N_batch_count1_m128_n128_k128_f32_r_f32_r_none", "ok", (7.9, 8.0), "us",
    ),
    "hyperfine.json": ("hyperfine", "sleep 0.1", "ok", (0.1011,), "s"),
    "nccl_tests.json": ("nccl-tests-json", "ranks2_size1048576_float_none", "ok", (20.5,), "us"),
    "nccl_tests_mpi.txt": ("nccl-tests", "all_reduce_ranks4_size1024_float_sum", "ok", (28.33,), "us"),
    "nvbench.json": ("nvbench", "copy_Device=0 Elements=2^40", "skipped", (), ""),
    "pytest_benchmark.json": (
        "pytest-benchmark", "bench\u2215test_copy.py::test_copy[4096]", "ok", (1e-5, 1.1e-5, 1.2e-5), "s",
    ),
    "pytorch_benchmark.json": (
        "pytorch-benchmark", "torchao_llama-8b_bf16_latency (ms)", "ok", (11.2, 11.4, 11.3), "ms",
    ),
    "rccl_tests.csv": ("rccl-tests-csv", "AllReduce_ranks8_size1048576_float_sum_inPlace1", "wrong", (), ""),
    "rccl_tests_two.txt": ("nccl-tests", "broadcast_ranks2_size1048576_bfloat16_none", "ok", (52.43, 54.43), "us"),
    "rocblas_bench.txt": ("rocblas-bench", "N_T_M1024_N1024_K1024", "ok", (56.5,), "us"),
    "rocprofv3_kernel_stats.csv": ("rocprofv3", "Cijk_Ailk_Bljk_HHS_BH", "ok", (15000.0,), "ns"),
    "sglang_serving.jsonl": ("serving", "random_request_rate4.0_max_concurrency16", "ok", (30.1,), "ms"),
    "vllm_serve.json": ("serving", "llama-8b_request_rate8.0", "ok", (41.2,), "ms"),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_file_is_recognised_and_read(name):
    reads, case, status, samples, unit = RECORDED[name]
    text = (FILES / name).read_text()
    assert fitting(text, KNOWN).name == reads
    found = [row for row in read(text, KNOWN[reads]).rows if (row.case, row.status) == (case, status)]
    assert (found[0].samples, found[0].unit) == (samples, unit)


@pytest.mark.parametrize("name", [*RECORDED, "perf_report.csv"])
def test_hostile_variants_end_in_rows_or_in_a_sentence(name):
    text = (FILES / name).read_text()
    reader = KNOWN[RECORDED[name][0] if name in RECORDED else "perf_report"]
    spoiled = [text[: len(text) * part // 10] for part in range(10)]
    spoiled += [text.replace("1", "x"), text.replace("0", "nan"), text.replace(".", ","), text.replace("\n", "\r\n")]
    spoiled += [text.replace('"', ""), text.replace(":", ": null, "), text.replace(",", ";"), "\x00" + text, text * 2]
    spoiled += [
        "[" * 100_000,
        "{}",
        "null",
        "[1, 2]",
        '{"results": 3, "benchmarks": {"a": 1}}',
        "a,b\n1",
        "\ufeff" + text,
    ]
    for each in spoiled:
        try:
            found = read(each, reader).rows
        except ReaderError:  # a sentence
            continue
        for row in found:
            assert (row.status == "ok") == bool(row.samples) == (not row.note), row
            assert all(math.isfinite(one) and one > 0 for one in row.seconds), row


SOUND = {
    **{name: (FILES / name).read_text() for name in [*RECORDED, "perf_report.csv"]},
    "own.csv": "case,backend,seconds,status\na,x,2.5,ok\na,y,3.5,ok\nb,x,4.5,ok\n",
}
"""A file for every reader that is shipped."""


def reader_of(name):
    return RECORDED[name][0] if name in RECORDED else {"own.csv": "csv"}.get(name, "perf_report")


def test_every_reader_has_a_file():
    assert {reader_of(name) for name in SOUND} == KNOWN.keys()


def number_like(value):
    """A pattern of a number as files have it, with or without zeros behind it."""
    word = f"{value:.10g}"
    return rf"(?<![\w.]){re.escape(word)}{'0*' if '.' in word else r'(?:[.]0+)?'}(?![\w.])"


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("spoiled", ["nan", "null", "-1", "0", "x", "1e999", '"7 us"'])
def test_a_spoiled_number_is_no_time_and_costs_no_other_row_in_silence(name, spoiled):
    """One number at a time; what stays sound is what was sound before."""
    text, reader = SOUND[name], KNOWN[reader_of(name)]
    sound = {(row.case, row.backend): row for row in read(text, reader).rows}
    numbers = {number_like(one): row for row in sound.values() if len(row.samples) == 1 for one in row.samples}
    alone = {number: row for number, row in numbers.items() if len(re.findall(number, text)) == 1}
    assert alone or name in ("google_benchmark.json", "pytest_benchmark.json", "rccl_tests_two.txt"), (
        "nothing is spoiled"
    )
    for number, row in alone.items():
        try:
            reading = read(re.sub(number, spoiled, text), reader)
        except ReaderError:  # a document that is no JSON any more
            continue
        got = {(one.case, one.backend): one for one in reading.rows}
        own = got.pop((row.case, row.backend), None)
        assert own is None or own.status != "ok" or name == "hyperfine.json", own  # which has a mean, too
        assert own or reading.said, "lost in silence"
        assert reading.said or got.keys() == sound.keys() - {(row.case, row.backend)}


def test_world_is_processes_times_threads_times_gpus():
    data = json.loads((FILES / "nccl_tests.json").read_text())
    data["config"] |= {"nthreads": 1, "ngpus": 8, "devices": data["config"]["devices"][:1]}
    found = read(json.dumps(data), KNOWN["nccl-tests-json"]).rows
    assert {row.ranks for row in found} == {8}


def test_what_google_benchmark_skips_is_skipped_with_its_message():
    row = {"name": "BM", "run_name": "BM", "run_type": "iteration", "real_time": 0.0, "time_unit": "ns"}
    text = json.dumps({"context": {}, "benchmarks": [{**row, "skipped": True, "skip_message": "no GPU"}]})
    [found] = read(text, KNOWN["google-benchmark"]).rows
    assert (found.status, found.note, found.samples) == ("skipped", "no GPU", ())


def test_only_aggregates_count_where_there_is_no_repetition():
    assert rows((FILES / "google_benchmark.json").read_text())["BM_Sum", "google-benchmark"] == ("ok", (4.0,))


def test_a_log_that_ends_in_a_failure_keeps_its_rows_and_says_where_it_broke_off():
    text = (FILES / "nccl_tests_mpi.txt").read_text().partition("[1,0]<stdout>:    67108864")[0]
    reading = read(f"{text}node-a: Test NCCL failure common.cu:378 'unhandled cuda error'\n", KNOWN["nccl-tests"])
    assert [row.status for row in reading.rows] == ["ok"] * 4
    assert "after all_reduce_ranks4_size262144_float_sum" in reading.died
    assert "Test NCCL failure" in reading.said[-1]


def test_new_columns_cost_no_row():
    lines = (FILES / "nccl_tests_mpi.txt").read_text().splitlines()
    more = {"redop": "  algo  proto", "float": "  Ring  LL"}
    wider = [line + next((added for word, added in more.items() if word in line), "") for line in lines]
    reading = read("\n".join(wider), KNOWN["nccl-tests"])
    assert len(reading.rows) == 6
    assert reading.said == ()


def test_one_bad_row_fails_alone():
    data = json.loads((FILES / "nccl_tests.json").read_text())
    data["results"][0]["out_of_place"]["time"] = "nan"
    data["results"].insert(0, None)
    found = read(json.dumps(data), KNOWN["nccl-tests-json"]).rows
    assert [row.status for row in found] == ["failed", "failed", "ok", "ok"]
    assert "null" in found[0].note
    assert "'nan', no time" in found[1].note


def test_repeats_are_samples_and_contradictions_fail():
    heading = "case,seconds,status\n"
    assert rows(heading + "a,1,ok\na,2,ok\n", "csv")["a", "csv"] == ("ok", (1.0, 2.0))
    assert rows(heading + "a,1,ok\na,2,wrong\n", "csv")["a", "csv"][0] == "failed"
    two_units = "\n".join(json.dumps({"c": "a", "v": 1, "u": unit}) for unit in ("us", "ms"))
    number = {"field": "v", "unit_field": "u"}
    [row] = read(two_units, declared({"name": "r", "rows": "json lines", "case": "c", "time": number})).rows
    assert (row.status, row.note) == ("failed", "the case stands there 2 times, with unit ms and us")


def test_a_wide_table_has_a_series_per_column_with_its_unit():
    text = (FILES / "perf_report.csv").read_text()
    assert rows(text, "perf_report")["1024.0", "Triton"] == ("ok", (411.2,))
    bare = text.replace(" (GB/s)", "")
    assert rows(bare, "perf_report")["1024.0", "Triton"][0] == "failed", "no unit is known"
    [first, *_] = read(bare, KNOWN["perf_report"], "TFLOPS").rows
    assert first.cost == {"flops": 1e12}
    assert first.cost["flops"] / first.seconds[0] == pytest.approx(411.2e12)


def test_a_rate_is_kept_so_that_pages_show_it_again():
    for unit, (name, amount) in RATES.items():
        reader = declared({"name": "r", "rows": "csv", "case": ["c"], "rate": {"field": "v", "unit": unit}})
        [row] = read("c,v\na,250\n", reader).rows
        assert row.cost == ({name: amount} if name else {})
        assert row.seconds == pytest.approx((1 / 250,))


def test_declarations_are_held_to_their_keys():
    sound = {"name": "r", "rows": "pattern", "pattern": r"(?P<size>\d+) took (?P<us>\S+) us", "case": "size"}
    timed = declared({**sound, "time": {"field": "us", "unit": "us"}})
    assert read("x\n64 took 3.5 us\n", timed).rows[0].samples == (3.5,)
    wrong = [
        ({**sound}, "needs one of"),
        ({**sound, "time": {"field": "us", "unit": "min"}}, "'min' is not one of"),
        ({**sound, "rows": "xml"}, "json"),
        ({**sound, "patern": "x"}, "unknown key 'patern'"),
        ({**sound, "pattern": "("}, "no pattern"),
        ({"rows": "csv"}, "name"),
        ({**sound, "time": {"feld": "us"}}, "unknown key 'feld'"),
    ]
    for table, said in wrong:
        with pytest.raises(ReaderError, match=said):
            declared(table)


def test_an_output_that_nobody_knows_is_refused_with_the_readers_that_there_are():
    with pytest.raises(ReaderError, match="no reader knows this output.*hipblaslt-bench"):
        fitting("hello", KNOWN)
