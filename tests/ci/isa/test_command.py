"""The command: in a small repository with three commits, with real compilations of one kernel, and its refusals."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from asv.results import Results

from benchmarks.isa.__main__ import CompiledArms
from benchmarks.program import parse_options
from ci.__main__ import main
from ci.commands.isa import isa
from ci.isa.compiled import TreeCompiler, Wanted
from tests.ci.isa.documents import document_json, entry_json
from tests.kit import SECOND, git

SAMPLES = Path(__file__).resolve().parents[2] / "benchmarks" / "isa" / "tree"
HINT = "tl.max_contiguous(tl.multiple_of(remote, (1, 16)), (1, 16))"


DATES = {"GIT_AUTHOR_DATE": SECOND, "GIT_COMMITTER_DATE": SECOND}
"""All commits have the same second, as on a fast machine; what is shown must not depend on it."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """main~2: the samples of an all-gather; main~1: a comment more; main: without its hint."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "samples").mkdir()
    (folder / ".gitignore").write_text("__pycache__/\n.ridgeline/\n/results/\n")
    shutil.copy(SAMPLES / "pyproject.toml", folder)
    for name in ("__init__.py", "all_gather.py"):
        shutil.copy(SAMPLES / "samples" / name, folder / "samples" / name)
    git(folder, "init", "-q", "-b", "main")
    translate = folder / "samples" / "__init__.py"
    for text in (
        translate.read_text(),
        "# moved down\n" + translate.read_text(),
        translate.read_text().replace(HINT, "remote"),
    ):
        translate.write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "--allow-empty", "-m", "next", **DATES)
    return folder


@pytest.fixture
def run(repository, monkeypatch, capsys):
    """(exit code, standard output) of the command in the repository; usage errors raise."""
    monkeypatch.chdir(repository)

    def call(*arguments):
        code = isa.main(list(arguments), standalone_mode=False)
        return code, capsys.readouterr().out

    return call


@pytest.fixture
def refused(repository, monkeypatch, capsys):
    """The one sentence with which `ridgeline isa` refuses something, exit code 3."""
    monkeypatch.chdir(repository)

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["isa", *arguments])
        said = capsys.readouterr().err
        assert ended.value.code == 3
        assert "Traceback" not in said
        return " ".join(said.split())

    return call


@pytest.mark.slow
def test_a_lost_hint_is_a_regression_and_a_comment_is_not(run):
    code, out = run("main~1", "main", "--arch", "gfx942", "--show")
    assert code == 1
    assert "! stores to remote ranks went from 16 B to 2 B per lane: 64 global_store_short" in out
    assert "+global_store_short _, _, off" in out
    code, out = run("main~2", "main~1", "--arch", "gfx942", "--json")
    assert (code, json.loads(out)["verdict"]) == (0, "SAME")
    code, out = run("main~1", "--arch", "gfx942", "--json")
    assert (code, json.loads(out)["head"]["dirty"]) == (1, False)


@pytest.mark.slow
def test_a_kernel_that_one_side_lacks_can_be_named(run, refused, repository):
    new = repository / "samples" / "another.py"
    new.write_text((repository / "samples" / "all_gather.py").read_text().replace("sample_all_gather", "another_name"))
    try:
        code, out = run("main", "--arch", "gfx942", "--kernel", "another_name")
        assert "NEW  another_name/triton [tile] on gfx942" in out
        said = refused("main", "--arch", "gfx942", "--kernel", "anther")
        assert "no kernel 'anther'; known: another_name, sample_all_gather" in said
    finally:
        new.unlink()
    code, out = run("main~1", "main", "--arch", "gfx942", "--case", "m1024")
    assert code == 1


@pytest.mark.slow
def test_the_history_is_recorded_and_read_by_asv(run, tmp_path, repository):
    code, out = run("--range", "main~2..main", "--arch", "gfx942", "--results", str(tmp_path / "results"), "--json")
    assert code == 0
    recorded = json.loads(out)["recorded"]
    assert len(recorded) == 2
    values = [Results.load(path, machine_name="isa") for path in recorded]
    series = "sample_all_gather.track_isa_subdword_remote_stores"
    assert [v.get_result_value(series, v.get_result_params(series))[0] for v in values] == [0, 64]
    code, out = run("--range", "main~2..main", "--arch", "gfx942", "--results", str(tmp_path / "results"))
    assert (code, out) == (0, f"0 commits recorded in {tmp_path / 'results'}, 2 known already, 0 problems.\n")


@pytest.mark.slow
def test_the_working_tree_is_described(run):
    code, out = run("--arch", "gfx942")
    assert code == 0
    assert "sample_all_gather/triton [tile] on gfx942 (m1024, m2048): 30 VGPRs" in out
    code, out = run("--arch", "gfx942", "--json")
    assert json.loads(out)["format"] == "ridgeline-isa"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-branch"], "'no-such-branch' names no commit"),
        (["--range", "main"], "'main' is not a range"),
        (["main", "--range", ".."], "exclude each other"),
        (["--arch", "gfx90z"], 'arch[0] is "gfx90z"; allowed: gfx942, gfx950, sm_90'),
        (["main~1", "main", "--policy", "none.toml"], "cannot be read"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_3(refused, arguments, said):
    assert said in refused(*arguments)


def test_a_broken_result_is_one_sentence_and_exit_code_3(refused, monkeypatch):
    monkeypatch.setattr(TreeCompiler, "result", lambda *_: json.dumps(document_json(entry_json(vgpr="many"))))
    assert re.search(r'entry 1 .*\.metrics\.vgpr is "many"; allowed', refused("--arch", "gfx942"))


def test_what_is_wanted_as_options_of_the_compiling_program():
    wanted = Wanted(arches=["gfx942", "sm_90"], cases=["a*"], lenient=True)
    asked = parse_options(CompiledArms, wanted.options())
    assert (asked.arch, asked.case, asked.kernel, asked.tier) == (("gfx942", "sm_90"), ("a*",), (), "pr")
    assert asked.lenient


@pytest.mark.parametrize("arguments", [["main"], ["--range", "main~1..main"], []])
def test_a_dry_run_compiles_nothing(run, arguments, monkeypatch):
    monkeypatch.setattr(TreeCompiler, "result", None)
    code, out = run(*arguments, "--dry-run")
    assert code == 0
    assert out.startswith("Would ")
