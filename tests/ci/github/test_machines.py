"""The machine list: what GitHub gets, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.github import machines
from ci.github.machines import MachinesError
from kernels.hardware import by_market_name

GOOD = {"name": "m", "gpu": "MI300X", "runs_on": ["self-hosted"], "image": "i", "options": "-x"}


def test_ours_are_known_hardware() -> None:
    names = {machine["gpu"] for machine in machines.load()}
    assert {"MI300X", "MI325X", "MI355X"} <= names
    for name in names:
        assert by_market_name(name).market_name == name


def test_amd_machines_get_their_devices_and_locked_memory() -> None:
    for machine in machines.load():
        if machine["gpu"].startswith("MI"):
            for flag in (
                "--device=/dev/kfd",
                "--device=/dev/dri",
                "--group-add video",
                "--ulimit memlock=-1",
                "--security-opt seccomp=unconfined",
                "--shm-size=",
            ):
                assert flag in machine["options"]


def test_the_output_of_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert machines.main(["h200"], {"GITHUB_OUTPUT": str(tmp_path / "out")}) == 0
    line = capsys.readouterr().out.strip()
    assert [machine["name"] for machine in json.loads(line)] == ["h200"]
    assert (tmp_path / "out").read_text() == f"machines={line}\n"


def test_an_unknown_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert machines.main(["moon"], {}) == 3
    assert "known: mi300x" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "not JSON"),
        ("[]", "needs a list"),
        ('{"machines": []}', "needs a list"),
        ({**GOOD, "extra": 1}, "exactly the fields"),
        ({**GOOD, "image": ""}, "image must be"),
        ({**GOOD, "runs_on": "self-hosted"}, "runs_on must be a list"),
        ({**GOOD, "runs_on": ["ubuntu"]}, "self-hosted"),
        ({**GOOD, "name": "MI 300"}, "use 1 to 40"),
        ([GOOD, GOOD], "same name"),
    ],
)
def test_a_bad_file(tmp_path: Path, document: object, message: str) -> None:
    entries = document if isinstance(document, list) else [document]
    text = document if isinstance(document, str) else json.dumps({"machines": entries})
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(MachinesError, match=message):
        machines.load(tmp_path / "m.json")
