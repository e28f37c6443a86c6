"""The charts of the pages: the committed script is what the locked packages and the bundle's script give."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.dashboards import node

ROOT = Path(__file__).parents[2]
BUNDLE, COMMITTED = ROOT / "dashboards" / "bundle", ROOT / "dashboards" / "static" / "echarts"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle's folder with its packages: those of `make bundle` if they are there, else freshly installed."""
    if (BUNDLE / "node_modules" / ".package-lock.json").exists():
        return BUNDLE
    return node.installed(BUNDLE, tmp_path_factory.mktemp("bundle") / "bundle")


@pytest.mark.slow
def test_the_committed_charts_are_what_the_locked_packages_give(bundle: Path, tmp_path: Path) -> None:
    subprocess.run(["node", "build.mjs", tmp_path], cwd=bundle, check=True, timeout=120)
    made, kept = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in (tmp_path, COMMITTED))
    assert made.keys() == kept.keys()
    differing = [name for name in made if made[name] != kept[name]]
    assert differing == [], "run `make bundle` and commit what it writes"


def test_the_lock_pins_what_the_script_says_it_holds() -> None:
    wanted = json.loads((BUNDLE / "package.json").read_text())["devDependencies"]
    lock = json.loads((BUNDLE / "package-lock.json").read_text())
    packages = {name.removeprefix("node_modules/"): one for name, one in lock["packages"].items() if name}
    assert {name: packages[name]["version"] for name in wanted} == wanted
    assert all(one["integrity"].startswith("sha512-") for one in packages.values())
    assert not any("resolved" in one for one in packages.values()), "a lock names no host"
    head = (COMMITTED / "charts.min.js").read_text()[:200]
    assert re.findall(r"(ECharts|zrender) ([\d.]+)", head) == [
        ("ECharts", packages["echarts"]["version"]),
        ("zrender", packages["zrender"]["version"]),
    ]


def test_the_script_asks_for_nothing_and_runs_no_text() -> None:
    script = (COMMITTED / "charts.min.js").read_text()
    for word in ("http:", "https:", "new Function(", "eval(", "XMLHttpRequest", "fetch(", "import("):
        assert word not in script, word
