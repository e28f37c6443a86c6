"""Everything that can go wrong in compiling: each fault is one sentence, and the rest goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import HANGS_S, ROOT

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("compile_faults")]

FAULTS = Path(__file__).parent / "faults"


def run(*arguments):
    """(exit code, standard output, standard error) of the command."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.isa", *map(str, arguments)],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
        timeout=HANGS_S,
    )
    return done.returncode, done.stdout, done.stderr


def compile_for_gfx942(tree, cache, *more):
    """The options of a compilation without progress lines."""
    return ["--tree", tree, "--arch", "gfx942", "--cache", cache, "--progress", "none", *more]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """All faults at once on both AMD architectures, with tight limits."""
    out = tmp_path_factory.mktemp("faults") / "isa.json"
    limits = ("--timeout", 15, "--memory", 1500)
    files = ("--tree", FAULTS, "--cache", out.parent / "cache", "--out", out)
    code, _, said = run(*files, "--arch", "gfx942", "--arch", "gfx950", *limits, "--progress", "none")
    assert code == 1, said
    return json.loads(out.read_text()) | {"folder": out.parent / "cache"}


def entry(result, kernel, arch="gfx942"):
    (found,) = (e for e in result["entries"] if (e["kernel"], e["arch"]) == (kernel, arch))
    return found


def test_the_sound_kernel_goes_on_and_equal_compilations_are_merged(result):
    for arch in ("gfx942", "gfx950"):
        assert entry(result, "sound", arch)["status"] == "ok"
        assert entry(result, "sound", arch)["cases"] == ["one", "two"]


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        ("hangs", "the process gave no answer within 15 s in step: compiling; killed"),
        ("eats", "the process was killed: it took more than 1500 MB of memory in step: compiling"),
    ],
)
def test_limits_are_said_in_words(result, kernel, why):
    assert entry(result, kernel)["status"] == "failed"
    assert entry(result, kernel)["why"] == why


def test_a_function_whose_digest_cannot_be_made_fails_every_time(result):
    assert entry(result, "unread")["cases"] == ["one", "two"]
    assert entry(result, "unread")["why"].startswith("RuntimeError: Unsupported function referenced: ")


def test_a_crash_of_the_compiler_is_a_result(result):
    assert entry(result, "dies")["why"].startswith("the process was killed by SIGABRT in step: compiling")


def test_the_first_cause_names_the_line_of_the_kernel(result):
    why = entry(result, "misfit")["why"]
    assert why == (
        "ValueError at line 2, `tl.store(target + tl.arange(0, BLOCK), tl.load(source + tl.arange(0, 2 * "
        "BLOCK)))`: Cannot make_shape_compatible: incompatible dimensions at index 0: 1024 and 2048"
    )


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("bad_option", "option 'num_wraps' means nothing to the hip backend"),
        ("foreign_option", "option 'maxnreg' means nothing to the hip backend"),
        ("bad_parameter", "copy has no parameter 'BLOK'; it has source, target, N, BLOCK"),
        ("missing_parameter", "bad_at_compile_time needs HOW, which the declaration does not give"),
        ("bad_type", "argument 'source' has the type '*float16'; a pointer type is '*' and one of fp64, fp32, fp16"),
        ("tuned", "function is of type Autotuner; declare the @triton.jit or @gluon.jit function itself"),
    ],
)
def test_a_declaration_that_would_not_be_what_it_says_is_refused_by_name(result, kernel, said):
    assert entry(result, kernel)["status"] == "refused"
    assert said in entry(result, kernel)["why"]


def test_a_failing_declaration_is_named(result):
    assert entry(result, "undeclared")["why"] == ("its isa() declaration failed: KeyError: 'no tile for this shape'")


def test_an_option_that_an_architecture_overrides_is_noted(result):
    assert entry(result, "kpack", "gfx942")["notes"] == []
    assert any("kpack" in note for note in entry(result, "kpack", "gfx950")["notes"])


def test_unsupported_is_not_a_failure(result):
    assert entry(result, "only_gfx950", "gfx942")["status"] == "unsupported"
    assert entry(result, "only_gfx950", "gfx942")["why"] == "needs gfx950"
    assert entry(result, "only_gfx950", "gfx950")["status"] == "ok"


def test_a_tensor_in_a_storage_beyond_2_gib_gets_no_buffer_loads(result):
    texts = {kernel: (result["folder"] / entry(result, kernel)["asm"]).read_text() for kernel in ("sound", "large")}
    assert "buffer_load_dwordx2" in texts["sound"]
    assert "global_load_dwordx2" in texts["large"]
    assert "buffer_load" not in texts["large"]


def test_a_module_that_does_not_import_is_counted(result):
    assert [b["module"] for b in result["broken"]] == ["faulty.missing"]
    assert "no_such_package" in result["broken"][0]["why"]


@pytest.mark.parametrize(
    ("arguments", "known"),
    [
        (["--backend", "trytone"], "no backend 'trytone' with an isa() declaration; known: triton"),
        (["--case", "zzz*"], "no case 'zzz*' in tier pr; known: "),
    ],
)
def test_a_name_that_chooses_nothing_is_a_usage_error_unless_the_tree_may_lack_it(tmp_path, arguments, known):
    chosen = compile_for_gfx942(FAULTS.parent / "tree", tmp_path, *arguments)
    code, _, said = run(*chosen)
    assert code == 3
    assert known in said
    code, out, _ = run(*chosen, "--lenient")
    assert (code, json.loads(out)["entries"]) == (2, [])


def test_a_package_that_ends_the_process_is_a_failure_of_the_listing(tmp_path):
    package = tmp_path / "ends"
    package.mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.ridgeline]\nkernels = ["ends"]\n')
    (package / "__init__.py").write_text("import os\nos._exit(7)\n")
    code, out, _ = run("--tree", tmp_path, "--arch", "gfx942", "--cache", tmp_path / "cache")
    assert code == 2
    assert json.loads(out)["failures"] == [
        {
            "arch": "gfx942",
            "why": (
                "the kernels could not be listed for gfx942: the process ended with exit code 7 in step: compiling"
            ),
        }
    ]


# Code can be compiled for a part of a chip, without one: the count of compute units that is assumed can be given.
