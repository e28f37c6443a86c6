"""Build the dashboard: a folder of plain files that opens from disk, a function of the records alone.

    python -m dashboards --results results --out site

Read, derive, make every file, put the folder in place.  Pages load nothing over the network and do not say when they
were built: the same records give the same bytes.  Data travel as scripts that call `Ridgeline.receive(...)`, because a
browser does not let a page fetch files from disk.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import jinja2
import pandas as pd

from ci.history import exact, reading, triage
from ci.history.analysis import History
from ci.records import derived, ledger, store
from ci.records.derived import derive
from dashboards import cases, compare, events, files, front, kernel, machines, studies
from dashboards.files import SiteError, receive, script_json, slug
from dashboards.frame import STILL_READ, Site, lanes
from kernels import project

HERE = Path(__file__).parent
SCRIPTS = ("ui", "format", "chart", "table", "sheet", "compare", "app")
"""Of static/, in the order in which they need each other: a site has them as one script."""


class Page(NamedTuple):
    """A page of the menu.  path: of its data, with {lane} where it is of one machine."""

    name: str
    title: str
    path: str


PAGES = (
    Page("compare", "Compare", "compare"),
    Page("events", "Events", "events"),
    Page("roofline", "Roofline", "{lane}/roofline"),
    Page("scaling", "Scaling", "scaling"),
    Page("studies", "Studies", "studies"),
    Page("machines", "Machines", "machines"),
)

NO_RECORDS = {
    "title": "",
    "pieces": [
        {"kind": "text", "look": "verdict good", "text": "There are no records yet."},
        {
            "kind": "text",
            "look": "notice",
            "text": "Measure a commit with `ridgeline run`, or record trial files from another machine with"
            " `ridgeline records add trials.jsonl`; then build this site again with `ridgeline site`.",
        },
    ],
}


def build(results: Path, out: Path, repo_url: str | None = None, made_of: str = "") -> Site:
    """Build the site of all records in `results` into `out`, replacing an older site; what it was made of.

    A site with problems never stands for the next one: they are said again.

    repo_url: where commits are shown, e.g. "https://github.com/ROCm/our-kernels"; without it a commit is only a hash.
    made_of: `files.inputs`.  Raises SiteError, and changes nothing, if `out` holds anything but a site.
    """
    address = repository(repo_url)
    files.check_target(out.absolute())
    site = read(results)
    files.write(out.absolute(), site_files(site, address), "" if site.problems else made_of)
    return site


def read(results: Path) -> Site:
    """The records of a folder, derived, with their history."""
    frame = store.load(results)
    problems = [*frame.attrs.get("problems", ()), *ledger.causes_in(results)[1]]
    return of_frame(derive(frame), results, problems)


def of_frame(frame: pd.DataFrame, results: Path, problems: Sequence[str] = ()) -> Site:
    """The same of a derived frame.  Git, the recorded machine code and the file of decisions are those of the folder
    around the records; without git a commit is only its hash."""
    around = results.resolve().parent
    code = around / "results_isa"
    decided = triage.load(project.around(around).events)
    history = (
        reading.of_frame(frame, results, code, decided)
        if len(frame)
        else History((), {}, unread=frame.attrs.get("unread", 0))
    )
    notes_of = functools.cache(lambda *place: store.trials(results, store.Place(*place)))
    told = [text.replace(f"{results}/", "") for text in problems]
    shown, still_read = lanes(frame), frame[list(STILL_READ)]
    return Site(results, still_read, shown, history, notes_of, exact.records(code, around), told)


def site_files(site: Site, repo: str | None = None) -> dict[str, bytes]:
    """Every file of the site by its path."""
    made = {f"data/{path}.js": receive(path, value) for path, value in data(site)}
    made |= events.files(site) | studies.files(site)
    static = HERE / "static"
    made["static/ridgeline.js"] = b"\n".join((static / f"{name}.js").read_bytes() for name in SCRIPTS)
    made["static/style.css"] = (static / "style.css").read_bytes()
    for path in sorted((static / "echarts").iterdir()):
        made[f"static/echarts/{path.name}"] = path.read_bytes()
    made["data/site.js"] = b"Ridgeline.site = " + script_json(described(site, repo)) + b";\n"
    digest = hashlib.sha256()
    for path in sorted(path for path in made if path.endswith((".js", ".css"))):
        digest.update(path.encode() + made[path])
    return made | dict(pages(site, digest.hexdigest()[:12]))


def data(site: Site) -> Iterator[tuple[str, Any]]:
    """(path, value) of every data file."""
    if not site.lanes:
        yield "front", NO_RECORDS
    back_to_back = derived.sustained_vs_spaced(site.results, site.frame)
    yield from front.front_files(site)
    for lane in site.lanes:
        yield from kernel.kernel_files(site, lane, back_to_back)
    yield from kernel.code_files(site)
    yield from compare.compare_files(site)
    yield "events", events.events_page(site)
    yield from cases.roofline_files(site)
    yield from cases.scaling_files(site)
    yield from studies.studies_files(site)
    yield "machines", machines.machines_page(site)


def described(site: Site, repo: str | None) -> dict[str, Any]:
    """What every page knows before it loads its data: machines, operators, where commits are shown."""
    return {
        "repo": repo,
        "lanes": [
            {
                "slug": lane.slug,
                "machine": lane.machine,
                "env": lane.env,
                "title": machines.title(lane) + (f", {lane.env}" if lane.env else ""),
                "kernels": [slug(kernel) for kernel in lane.cases],
            }
            for lane in site.lanes
        ],
        "kernels": [[kernel, slug(kernel)] for kernel in site.kernels()],
    }


def pages(site: Site, version: str) -> Iterator[tuple[str, bytes]]:
    """Every page.  version: digest of all that pages load, which stands in their addresses."""
    loader = jinja2.FileSystemLoader(HERE / "templates")
    options = {"autoescape": True, "trim_blocks": True, "keep_trailing_newline": True}
    template = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, **options).get_template("page.html")

    def page(name: str, title: str, path: str, root: str = "") -> bytes:
        values: Mapping[str, Any] = {"name": name, "title": title, "path": path, "root": root}
        return template.render({**values, "menu": PAGES, "version": version}).encode()

    yield "index.html", page("index", "speed of every kernel", "{lane}/front" if site.lanes else "front")
    for one in PAGES:
        path = one.path if site.lanes or "{lane}" not in one.path else "front"
        yield f"{one.name}.html", page(one.name, one.title, path)
    for operator in site.kernels():
        name = slug(operator)
        yield f"kernels/{name}.html", page(f"kernels/{name}", operator, f"{{lane}}/kernel-{name}", "../")


def repository(url: str | None) -> str | None:
    """The address under which /commit/HASH is found; SiteError for anything but http and https."""
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SiteError(f"{url!r} is no address of a repository; give one like https://github.com/OWNER/NAME")
    return url.rstrip("/").removesuffix(".git")
