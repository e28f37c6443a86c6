"""Every page by the rules of WCAG 2.2 AA as axe-core checks them, in light and dark, on a wide window and a phone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ci.records import store
from dashboards.views import pull_request
from tests.ci import made_trials
from tests.ci.sweeps import made_lines
from tests.dashboards import chromium, made_history, made_site, made_studies, node, synthetic
from tests.dashboards.made_history import MI300X
from tests.dashboards.test_events import GOLDEN

PACKAGE = Path(__file__).parent / "axe"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The checker's script, of the locked version."""
    folder = node.installed(PACKAGE, tmp_path_factory.mktemp("axe") / "axe")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    frame = synthetic.lively(60)
    reports = tuple(pull_request.read(GOLDEN / f"{name}.json") for name in ("slower", "broken"))
    folder = tmp_path_factory.mktemp("site")
    made = {name: make() for name, make in made_studies.MADE.items()}
    made_studies.write(folder / "results", "every_kind", made)
    store.record(
        [made_trials.write(folder / "t.jsonl", made_lines.line([({"num_warps": 8}, 0.9)]))], folder / "results"
    )
    shown = {"past": made_history.lively(frame), "reports": reports, "results": folder / "results"}
    return made_site.build_frame(frame, folder / "site", **shown)


def findings(page: chromium.Page, axe: str) -> list[str]:
    """What the checker finds on the page as it stands: rule, elements and why."""
    options = json.dumps({"runOnly": RULES, "resultTypes": ["violations"], "preload": False})
    found: list[dict[str, Any]] = page.run(f"{axe};\naxe.run({options}).then(found => found.violations)")
    return [f"{one['id']}: {[element['html'][:150] for element in one['nodes'][:3]]}, {one['help']}" for one in found]


@pytest.mark.parametrize(
    ("width", "scheme"), [(1400, "light"), (390, "dark")], ids=["wide and light", "a phone in the dark"]
)
def test_no_page_has_a_finding(page: chromium.Page, site: Path, axe: str, width: int, scheme: str) -> None:
    state = f"#machine={MI300X}&event=gemm-40&open=improvements,closed"
    pages = {path.name: path.name + state for path in sorted(site.glob("*.html"))}
    pages |= {name: f"kernels/{name}.html{state}" for name in ("gemm", "all_gather")}
    pages["gemm"] = f"kernels/gemm.html{state}&case=llm_up_m4096&backend=triton"
    found = {}
    for name, address in pages.items():
        page.size(width, 900, scheme)
        page.open(f"{site.as_uri()}/{address}")
        found[name] = findings(page, axe)
    assert "\n".join(f"{name}: {one}" for name, said in found.items() for one in said) == ""


@pytest.mark.parametrize("width", [360, 800])
def test_no_page_is_wider_than_the_window(page: chromium.Page, site: Path, width: int) -> None:
    page.size(width, 800)
    state = f"#machine={MI300X}&event=gemm-40&open=improvements,machines,libraries,closed,undecided"
    for path in [*site.glob("*.html"), site / "kernels" / "gemm.html"]:
        page.open(path.as_uri() + state)
        assert page.run("document.documentElement.scrollWidth") <= width, path.name


def test_the_dialogs_have_no_finding(page: chromium.Page, site: Path, axe: str) -> None:
    for key in ("?", "Control+k"):
        page.open(f"{site.as_uri()}/index.html")
        page.key(key)
        page.wait("document.querySelector('dialog[open]')")
        assert findings(page, axe) == []
