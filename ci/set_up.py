"""What the set-up asks of package indexes: whether they answer, and which build of torch there is for this Python.

    python ci/set_up.py                      refuse a Python that is too old
    python ci/set_up.py reach                the same, and an index of pip's that does not answer, within 45 s
    python ci/set_up.py install -e '.[cpu]'  the same, choose a build of torch, and run pip with these words
    python ci/set_up.py see VENV             let a virtual environment see the packages of the Python that runs this

Where Python has no torch, it comes from $TORCH_INDEX, if that is set; else as a CPU build, if a place that pip is
configured for has one; else as a CPU build of PyTorch's own index, if that answers at once; else as pip finds it, which
on Linux is the build with CUDA's libraries.  pip's configuration (indexes, proxy, certificates) holds for every
question.  Standard library only.

It is pip, not uv, because pip alone sees an image's packages (`see`) and reads the configuration that a
site has made.  From nothing, with CUDA's libraries, on 2 cores: pip 112 s, uv 33 s; both 5.7 GB (2026-11-28).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's builds without CUDA (pytorch.org/get-started/locally, 2026-11)."""

CPU_SIZE, CUDA_SIZE = "0.2 GB", "2.9 GB to download and 5.7 GB on disk"
"""torch 2.13.0+cpu; torch 2.14 with the libraries that it requires (Linux, x86_64; measured 2026-11-28)."""

ANSWER_S, CPU_ANSWER_S = 45.0, 10.0
"""Seconds for an index to answer; for PyTorch's, which nobody asked for, with the 1 to 4 s that pip takes to start."""

UNREACHED = re.compile(r"Could not fetch URL (\S+): (?:connection error|timed out|There was a problem confirming)")
"""An index that does not answer, in the words of `pip -vv`; one without this package answers 404."""


class SetUpError(Exception):
    """A set-up that cannot go on; the message says what was asked for and what to do."""


def oldest_and_beyond(requirement: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """The tested range of `torch` or `triton` by the extra `cpu`: the oldest, and the first that is too new."""
    bounds = re.search(rf"\b{requirement}>=(\d+)\.(\d+),<(\d+)\.(\d+)", PROJECT.read_text(encoding="utf-8"))
    assert bounds is not None, f"{PROJECT}: the extra `cpu` has no range of {requirement}"
    oldest_major, oldest_minor, beyond_major, beyond_minor = map(int, bounds.groups())
    return (oldest_major, oldest_minor), (beyond_major, beyond_minor)


def pythons() -> list[tuple[int, int]]:
    """The tested versions of Python, from the classifiers of the project."""
    classified = re.findall(r"Python :: (\d+)\.(\d+)", PROJECT.read_text(encoding="utf-8"))
    return [(int(major), int(minor)) for major, minor in classified]


def wrong_python() -> str:
    """Why this Python cannot be used, "" if it can; a newer one than the tested is tried."""
    version, tested = sys.version_info[:2], pythons()
    return "" if version >= tested[0] else f"{_this_python()} is too old; {_other_python()}"


def _this_python() -> str:
    return f"Python {sys.version_info[0]}.{sys.version_info[1]} ({sys.executable})"


def _other_python() -> str:
    names = ", ".join(f"{major}.{minor}" for major, minor in pythons())
    newest = ".".join(map(str, pythons()[-1]))
    return f"Ridgeline is tested with {names}: `make setup PYTHON=python{newest}` takes one of them"


def available(project: str, index: str = "", limit_s: float = ANSWER_S) -> list[str]:
    """Versions of a project for this Python, newest first; `index` stands for pip's own.

    Raises SetUpError if an index does not answer.
    """
    argv = [sys.executable, "-m", "pip", "index", "versions", project, "-vv", "--disable-pip-version-check"]
    argv += ["--timeout", str(int(min(limit_s, 20) / 2)), "--retries", "1", *(["--index-url", index] if index else [])]
    try:
        answer = subprocess.run(argv, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise SetUpError(_no_answer(project, index or "an index of pip's", f"within {limit_s:.0f} s")) from None
    if unreached := UNREACHED.search(answer.stdout + answer.stderr):
        raise SetUpError(_no_answer(project, unreached[1], ""))
    versions = re.search(r"^Available versions: (.+)$", answer.stdout, re.MULTILINE)
    if versions is None and "No matching distribution" not in answer.stderr:
        last = (answer.stderr or answer.stdout).strip().rpartition("\n")[2]
        raise SetUpError(f"{project} was asked for: {' '.join(argv)}\nended with {answer.returncode}: {last}")
    return versions[1].split(", ") if versions else []


def _no_answer(project: str, place: str, limit: str) -> str:
    return (
        f"{project} was asked for, and {place} does not answer{limit and ' '}{limit}.  `python -m pip config list` "
        "shows what pip is told: set a proxy (HTTPS_PROXY), a mirror (PIP_INDEX_URL) or a folder of wheels "
        "(PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER)"
    )


def newest_tested(versions: list[str], cpu: bool) -> str:
    """The first of `versions` in the tested range, "" if there is none.  cpu: only of builds named so."""
    oldest, beyond = oldest_and_beyond("torch")
    for version in versions:
        numbers = re.match(r"(\d+)\.(\d+)\.\d+(?:\+(.*))?$", version)
        if numbers and oldest <= (int(numbers[1]), int(numbers[2])) < beyond and (not cpu or numbers[3] == "cpu"):
            return version
    return ""


def torch_build(index: str) -> tuple[list[str], str]:
    """What pip is told so that it takes the right build ([] where pip chooses it), and a line about the build.

    index: $TORCH_INDEX.  Raises SetUpError.
    """
    (oldest, beyond), versions = oldest_and_beyond("torch"), available("torch")
    tested = f"torch {oldest[0]}.{oldest[1]} to {beyond[0]}.{beyond[1] - 1}"
    if index:
        if version := newest_tested(available("torch", index), cpu=False):
            return ["--extra-index-url", index, f"torch=={version}"], f"torch {version} from {index}"
        raise SetUpError(f"TORCH_INDEX={index} has no build of {tested} for {_this_python()}")
    if version := newest_tested(versions, cpu=True):
        return [f"torch=={version}"], f"torch {version} from a place that pip is configured for, {CPU_SIZE}"
    if not (version := newest_tested(versions, cpu=False)):
        raise SetUpError(f"no build of {tested} for {_this_python()} where pip looks; {_other_python()}")
    try:
        if cpu_version := newest_tested(available("torch", CPU_INDEX, CPU_ANSWER_S), cpu=True):
            arguments = ["--extra-index-url", CPU_INDEX, f"torch=={cpu_version}"]
            return arguments, f"torch {cpu_version} from {CPU_INDEX}, {CPU_SIZE}"
        missing = "has none"
    except SetUpError:
        missing = "does not answer"
    return [], (
        f"torch {version} from pip's index, {CUDA_SIZE}: a CPU build would be {CPU_SIZE}, but {CPU_INDEX} {missing}; "
        "`make setup TORCH_INDEX=URL` takes another index"
    )


def install(words: list[str]) -> int:
    """Run `pip install` with these words and a build of torch; pip's exit code.  Raises SetUpError."""
    arguments, line = torch_build(os.environ.get("TORCH_INDEX", ""))
    print(line, flush=True)
    quiet = ["--quiet"] if arguments else []  # where gigabytes come, pip shows how far they are
    argv = [sys.executable, "-m", "pip", "install", *quiet, "--disable-pip-version-check", "--no-compile"]
    return subprocess.run([*argv, *arguments, *words]).returncode


# Packages of an image: a ROCm or CUDA image brings its own build of torch, which must stay.
#
# `python -m venv --system-site-packages` shows only the packages of the *base* Python: in images where torch lives in a
# virtual environment itself (rocm/pytorch, /opt/venv) it shows none of them.  So the new environment gets a .pth file
# that names every package folder of this Python, whatever it is: a venv, conda, the system's.  Its own come first.


SEEN = "ridgeline_base_packages.pth"
"""Read by the `site` module of the environment at every start (docs.python.org/3/library/site.html)."""

FOLDERS = ("site-packages", "dist-packages")
"""How package folders are called: by Python itself, and by Debian."""


def package_folders(path: list[str]) -> list[str]:
    """The package folders among the entries of a sys.path, in order."""
    return [entry for entry in dict.fromkeys(path) if Path(entry).name in FOLDERS and Path(entry).is_dir()]


def see(environment: Path) -> int:
    """Write the .pth file: `addsitedir` follows the .pth files of the folders too (editable installs)."""
    python = environment / "bin" / "python"
    if not python.exists():
        raise SetUpError(f"{environment} is not the folder of a virtual environment: python ci/set_up.py see VENV")
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.run([str(python), "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    lines = (f"import site; site.addsitedir({folder!r})\n" for folder in package_folders(sys.path))
    (Path(own) / SEEN).write_text("".join(lines))
    return 0


def main(arguments: list[str]) -> int:
    """Exit code 0; 3 with a sentence; pip's own, if that fails."""
    try:
        if why := wrong_python():
            raise SetUpError(why)
        if arguments[:1] == ["install"]:
            return install(arguments[1:])
        if arguments[:1] == ["see"] and len(arguments) == 2:
            return see(Path(arguments[1]))
        if arguments == ["reach"]:
            available("click")
        elif arguments:
            raise SetUpError(f"{' '.join(arguments)!r} is not one of: reach, install WORDS, see VENV, or nothing")
    except SetUpError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
