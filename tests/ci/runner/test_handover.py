"""The folder of a slot and the scripts of the node, with real processes."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from ci.runner import state
from ci.runner.state import EVENTS, Ledger, Letters, LostJob, Pause, RunnerError, Slot
from tests.ci.runner.world import SERVING

TOKEN = "rl-aaaaaa-mi300x-1-000001"
NODE = Path(state.__file__).parent / "node"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    state.prepare(tmp_path, TOKEN, "#!/bin/bash\n", SERVING)
    return state.folder(tmp_path, TOKEN)


def test_the_folder_and_the_configuration_are_for_this_user_only(tmp_path: Path, place: Path) -> None:
    old = os.umask(0)
    try:
        state.answer(tmp_path, TOKEN, "c2VjcmV0")
    finally:
        os.umask(old)
    assert place.stat().st_mode & 0o777 == 0o700
    assert (place / "config").stat().st_mode & 0o777 == 0o600
    assert (place / "config").read_text() == "c2VjcmV0"
    assert [path.name for path in place.iterdir() if "c2VjcmV0" in path.read_text()] == ["config"]


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("asked", "17\n", Letters(asked="17")),
        ("run", "99", Letters(run=99)),
        ("run", "99; rm -rf /", Letters()),
        ("run", "9" * 5000, Letters()),
        ("code", "7\n", Letters(code=7)),
        ("code", "-1", Letters()),
        ("code", "\xff\x00", Letters()),
    ],
)
def test_letters_are_read_as_a_stranger_s(tmp_path: Path, place: Path, name: str, text: str, wanted: Letters) -> None:
    (place / name).write_text(text)
    assert state.letters(tmp_path, TOKEN) == wanted


def test_a_letter_that_is_a_link_or_a_pipe_is_not_followed(tmp_path: Path, place: Path) -> None:
    (tmp_path / "elsewhere").write_text("17")
    (place / "asked").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(place / "run")
    assert state.letters(tmp_path, TOKEN) == Letters()


def start(place: Path, program: Path, patience: int = 20) -> subprocess.Popen[str]:
    argv = ["bash", str(place / "start.sh"), str(place), str(program), str(patience)]
    env = os.environ | {"SLURM_JOB_ID": "17", "TMPDIR": str(place.parents[1])}
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def runner(tmp_path: Path, lines: str) -> Path:
    folder = tmp_path / "actions-runner"
    for name in ("bin", "externals", "_work"):
        (folder / name).mkdir(parents=True)
    (folder / ".credentials").write_text("of somebody else")
    (folder / "run.sh").write_text(f"#!/bin/bash\n{lines}\n")
    (folder / "run.sh").chmod(0o755)
    return folder / "run.sh"


def asked(place: Path) -> None:
    while not (place / "asked").exists():
        time.sleep(0.02)


def test_a_job_asks_gets_its_configuration_and_runs_its_own_copy(tmp_path: Path, place: Path) -> None:
    told = tmp_path / "told"
    lines = f"""cd "$(dirname "$0")"; exec > {told}; ls -A; readlink externals
echo "$ACTIONS_RUNNER_INPUT_JITCONFIG" "$@"; touch here; tr '\\0' ' ' < /proc/$$/cmdline; exit 7"""
    program = runner(tmp_path, lines)
    old, new = tmp_path / "ridgeline-runner-old", tmp_path / "ridgeline-runner-new"
    for one, age_s in ((old, 7 * 86_400), (new, 86_400)):
        one.mkdir()
        os.utime(one, (time.time() - age_s,) * 2)
    process = start(place, program)
    asked(place)
    assert state.letters(tmp_path, TOKEN) == Letters(asked="17")
    state.answer(tmp_path, TOKEN, "c2VjcmV0")
    assert process.wait(20) == 7
    assert told.read_text().startswith(f"bin\nexternals\nrun.sh\n{program.parent}/externals\nc2VjcmV0")
    assert "c2VjcmV0" not in told.read_text().splitlines()[-1], "not among the arguments"
    assert state.letters(tmp_path, TOKEN) == Letters(code=7)
    assert not (place / "config").exists()
    assert not (program.parent / "here").exists()
    assert list(tmp_path.glob("ridgeline-runner-*")) == [new], "the copy is gone, and the one of a job killed long ago"


def test_a_job_without_an_answer_leaves_and_one_without_a_program_never_asks(tmp_path: Path, place: Path) -> None:
    process = start(place, runner(tmp_path, "exit 0"), patience=0)
    assert process.wait(20) == 4
    assert "is the service running?" in process.communicate()[0]
    process = start(place, tmp_path / "absent" / "run.sh")
    assert process.wait(20) == 3
    assert state.letters(tmp_path, TOKEN).code == 3


def test_the_end_of_the_slurm_job_reaches_the_program(tmp_path: Path, place: Path) -> None:
    program = runner(
        tmp_path, f"trap 'touch {tmp_path}/told; exit 0' TERM; touch {tmp_path}/up; while :; do sleep 0.1; done"
    )
    process = start(place, program)
    asked(place)
    state.answer(tmp_path, TOKEN, "secret")
    while not (tmp_path / "up").exists():
        time.sleep(0.02)
    process.terminate()
    assert process.wait(20) == 0
    assert (tmp_path / "told").exists()


GOOD = {
    "GITHUB_REPOSITORY": "o/r",
    "GITHUB_WORKFLOW_REF": "o/r/.github/workflows/gpu.yml@refs/heads/ridgeline/gpu-7",
    "GITHUB_EVENT_NAME": "workflow_dispatch",
    "GITHUB_RUN_ID": "99",
}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"GITHUB_WORKFLOW_REF": "o/r/.github/workflows/gpu.yml@refs/pull/7/merge"},
        {"GITHUB_WORKFLOW_REF": "o/r/.github/workflows/evil.yml@refs/heads/main"},
        {"GITHUB_WORKFLOW_REF": "s/r/.github/workflows/gpu.yml@refs/heads/main"},
        {"GITHUB_REPOSITORY": "s/r", "GITHUB_WORKFLOW_REF": "s/r/.github/workflows/gpu.yml@refs/heads/main"},
        {"GITHUB_WORKFLOW_REF": "o/r/.github/workflows/gpu.yml@refs/tags/main"},
        {"GITHUB_EVENT_NAME": "pull_request_target"},
        {"GITHUB_WORKFLOW_REF": ""},
    ],
)
def test_the_guard_lets_what_is_allowed_pass_and_ends_the_worker_of_everything_else(
    place: Path, changed: dict[str, str]
) -> None:
    worker = f"bash -e {place}/guard.sh; echo steps with always"
    done = subprocess.run(["bash", "-c", worker], env=os.environ | GOOD | changed, capture_output=True, text=True)
    ran = "steps with always" in done.stdout
    assert ran is not bool(changed)
    assert (place / "run").exists() is ran
    assert (place / "refused").exists() is not ran
    assert (done.returncode == -9) is not ran


def test_the_guard_s_list_is_the_service_s() -> None:
    lines = state.allowed(SERVING).splitlines()
    assert len(lines) == len(SERVING.workflows) * len(SERVING.refs) * len(EVENTS)
    assert "o/r\t.github/workflows/gpu.yml\trefs/heads/main\tschedule" in lines


def test_what_the_service_knows_survives_it_and_a_foreign_file_is_named(tmp_path: Path) -> None:
    first = state.load(tmp_path)
    assert state.load(tmp_path) == first
    slot = Slot(TOKEN, "mi300x-1", 1.5, slurm="17", answered=2.5, run=99)
    known = Ledger(first.instance, (slot,), (LostJob(TOKEN, 99, 3.0),), {"99/x": 1}, (Pause("mi300x-1", 2, 9.0),), (4,))
    state.save(tmp_path, known)
    assert state.load(tmp_path) == known
    (tmp_path / "state.json").write_text('{"format": "other"}')
    with pytest.raises(RunnerError, match="state.json is not a state of `ridgeline ci runner`"):
        state.load(tmp_path)


def test_a_state_folder_serves_one_service_at_a_time(tmp_path: Path) -> None:
    with (
        state.held(tmp_path),
        pytest.raises(RunnerError, match="another `ridgeline ci runner` uses"),
        state.held(tmp_path),
    ):
        pass
