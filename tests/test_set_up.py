"""The set-up: the extras resolve from plain PyPI on every tested Python, and the right build of torch is taken.

Package indexes that a test needs are its own, on this machine; the resolver's check alone asks PyPI, and downloads no
wheel.  The workflow Set-up makes whole environments.
"""

from __future__ import annotations

import http.server
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks import doctor
from ci import set_up
from tests.kit import HANGS_S, ROOT
from tests.needed import absent

PYTHONS = [f"{major}.{minor}" for major, minor in set_up.pythons()]
(OLDEST_TORCH, BEYOND_TORCH), (OLDEST_TRITON, BEYOND_TRITON) = map(set_up.oldest_and_beyond, ("torch", "triton"))


def newest(beyond):
    return f"{beyond[0]}.{beyond[1] - 1}"


def dotted(version):
    return ".".join(map(str, version))


# ---- one range ----


def test_the_doctor_warns_outside_the_range_of_pyproject():
    declared = {
        "python": (set_up.pythons()[0], set_up.pythons()[-1]),
        "torch": (OLDEST_TORCH, (BEYOND_TORCH[0], BEYOND_TORCH[1] - 1)),
        "triton": (OLDEST_TRITON, (BEYOND_TRITON[0], BEYOND_TRITON[1] - 1)),
    }
    assert declared == doctor.TESTED


@pytest.mark.parametrize("path", ["README.md", ".github/guides/your_repository.md", ".github/guides/github.md"])
def test_texts_name_the_range_of_pyproject(path):
    text = " ".join((ROOT / path).read_text(encoding="utf-8").split())
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}" in text
    named = re.search(r"torch (2[.\d]+) to (2[.\d]+)[,;] Triton (3[.\d]+) to (3[.\d]+)", text)
    if path != ".github/guides/github.md" or named:
        assert named is not None
        tested = (dotted(OLDEST_TORCH), newest(BEYOND_TORCH), dotted(OLDEST_TRITON), newest(BEYOND_TRITON))
        assert named.groups() == tested


def test_workflows_take_a_tested_python():
    for path in (*(ROOT / ".github").rglob("*.yml"), *(ROOT / "ci/newcomer/templates").glob("*.j2")):
        for version in re.findall(r'(?:python-version|default): "?(3\.\d+)', path.read_text(encoding="utf-8")):
            assert version in PYTHONS, path
    (every,) = re.findall(r"python: \[(.*)\]", (ROOT / ".github/workflows/set_up.yml").read_text(encoding="utf-8"))
    assert every.replace('"', "").split(", ") == PYTHONS


# ---- the resolver ----


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    "words", [("--extra", "cpu", "--extra", "dev", "-c", "constraints.txt"), ("--extra", "cpu")], ids=["clone", "wheel"]
)
def test_the_extras_resolve_to_wheels_from_plain_pypi(python, words):
    """A clone's set-up and tools, and `pip install 'ridgeline[cpu]'` elsewhere; nothing is downloaded."""
    if not (uv := Path(sys.executable).parent / "uv").exists():
        absent(f"{uv} is not here: `make tools` brings it")
    platform = ("--python-version", python, "--python-platform", "x86_64-manylinux_2_28", "--only-binary", ":all:")
    quiet = ("--no-config", "--quiet", "--no-header", "--no-annotate")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
    done = subprocess.run(
        [uv, "pip", "compile", *quiet, *platform, *words, "pyproject.toml"],
        cwd=ROOT, capture_output=True, text=True, env=environ, timeout=HANGS_S,
    )  # fmt: skip
    if re.search(r"error sending request|[Dd]ns error|timed out", done.stderr):
        absent(f"PyPI does not answer, so whether the extras resolve is not known here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)", done.stdout, re.MULTILINE))
    assert doctor.is_tested("torch", versions["torch"])
    assert doctor.is_tested("triton", versions["triton"])


# ---- which build of torch ----


class Index(http.server.ThreadingHTTPServer):
    """A package index on this machine: versions by project, any other project is not found; `silent` never answers."""

    def __init__(self, silent=False, **versions):
        pages = {
            f"/{project}/": "".join(f'<a href="/{name}">{name}</a>' for name in map(_wheel(project), those))
            for project, those in versions.items()
        }
        self.ended = threading.Event()
        self.asked = list[str]()
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                index.asked.append(self.path)
                if silent:
                    index.ended.wait(60)
                elif (page := pages.get(self.path)) is None:
                    self.send_error(404)
                else:
                    self.send_response(200)
                    self.send_header("Content-Type", "text/html")
                    self.end_headers()
                    self.wfile.write(f"<!DOCTYPE html><html><body>{page}</body></html>".encode())

            def log_message(self, format, *args):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def end(self):
        self.ended.set()
        self.shutdown()
        self.server_close()


def _wheel(project):
    return lambda version: f"{project}-{version}-py3-none-any.whl"


@pytest.fixture
def pip(monkeypatch, tmp_path):
    """The index that pip is configured for: PyPI's builds, one of them newer than what is tested."""
    index = Index(torch=["2.10.0", "2.11.0", f"{newest(BEYOND_TORCH)}.1", f"{dotted(BEYOND_TORCH)}.0"], click=["8.1"])
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    yield index
    index.end()


@pytest.fixture
def cpu_builds(monkeypatch):
    """What stands in for PyTorch's index of CPU builds; pip may take its time on a busy machine."""
    index = Index(torch=["2.10.0+cpu", "2.14.0+cpu", f"{dotted(BEYOND_TORCH)}.0+cpu"])
    monkeypatch.setattr(set_up, "CPU_INDEX", index.url)
    monkeypatch.setattr(set_up, "CPU_ANSWER_S", set_up.ANSWER_S)
    yield index
    index.end()


@pytest.mark.slow  # asks pip
def test_a_cpu_build_of_pips_own_places_comes_first(pip, cpu_builds, tmp_path, monkeypatch):
    (tmp_path / "torch-2.13.0+cpu-py3-none-any.whl").touch()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    build, line = set_up.torch_build("")
    assert build == ["torch==2.13.0+cpu"]
    assert "a place that pip is configured for" in line
    assert not cpu_builds.asked


@pytest.mark.slow  # asks pip
def test_then_one_of_pytorchs_index_if_that_answers(pip, cpu_builds):
    build, line = set_up.torch_build("")
    assert build == ["--extra-index-url", cpu_builds.url, "torch==2.14.0+cpu"]
    assert line == f"torch 2.14.0+cpu from {cpu_builds.url}, 0.2 GB"


@pytest.mark.slow  # asks pip
@pytest.mark.parametrize("silent", [False, True])
def test_else_pips_build_with_what_it_requires_after_a_moment(pip, silent, monkeypatch):
    index = Index(silent=silent)
    monkeypatch.setattr(set_up, "CPU_INDEX", index.url)
    monkeypatch.setattr(set_up, "CPU_ANSWER_S", 4.0)
    if not silent:
        index.end()
    begin = time.monotonic()
    build, line = set_up.torch_build("")
    assert time.monotonic() - begin < 60
    assert build == []
    assert line.startswith(f"torch {newest(BEYOND_TORCH)}.1 from pip's index, 2.9 GB")
    assert "`make setup TORCH_INDEX=URL`" in line
    if silent:
        index.end()


@pytest.mark.slow  # asks pip
def test_an_index_that_is_named_is_taken_or_refused(pip, cpu_builds):
    rocm = Index(torch=["2.14.0+rocm7.2"])
    assert set_up.torch_build(rocm.url)[0] == ["--extra-index-url", rocm.url, "torch==2.14.0+rocm7.2"]
    rocm.end()
    empty = Index(torch=[f"{dotted(BEYOND_TORCH)}.0+cpu"])
    with pytest.raises(set_up.SetUpError, match=f"TORCH_INDEX={empty.url} has no build of torch 2.11 to"):
        set_up.torch_build(empty.url)
    empty.end()


@pytest.mark.slow  # asks pip
def test_a_python_without_wheels_is_told_which_have_them(pip, monkeypatch):
    index = Index(torch=["2.10.0"])
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    with pytest.raises(set_up.SetUpError, match=f"no build of torch .*{re.escape(', '.join(PYTHONS))}"):
        set_up.torch_build("")
    index.end()
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    assert re.search(r"Python 3.10 \(.*\) is too old; .*`make setup PYTHON=python3.14`", set_up.wrong_python())


@pytest.mark.slow  # asks pip
@pytest.mark.parametrize(("silent", "words"), [(True, ["reach"]), (False, ["install", "-e", ".[cpu]"])])
def test_without_a_network_an_error_says_what_was_asked_for(pip, silent, words, monkeypatch, capsys):
    index = Index(silent=silent)
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    if silent:
        monkeypatch.setattr(set_up.available, "__defaults__", ("", 5.0))
    else:
        index.end()
    begin = time.monotonic()
    assert set_up.main(words) == 3
    assert time.monotonic() - begin < 60
    error = capsys.readouterr().err
    assert re.search(r"^Error: (torch|click) was asked for, and .* does not answer", error)
    assert silent or index.url in error
    assert "PIP_INDEX_URL" in error
    if silent:
        index.end()


@pytest.mark.slow  # asks pip
def test_a_folder_of_wheels_needs_no_network(pip, tmp_path, monkeypatch):
    (tmp_path / "torch-2.13.0+cpu-py3-none-any.whl").touch()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert set_up.main(["reach"]) == 0
    assert set_up.torch_build("")[0] == ["torch==2.13.0+cpu"]
    assert not pip.asked


def test_other_words_are_refused(capsys):
    assert set_up.main(["instal"]) == 3
    assert "'instal' is not one of: reach, install WORDS, see VENV, or nothing" in capsys.readouterr().err
