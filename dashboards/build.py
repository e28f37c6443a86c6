"""Build the dashboard: a folder of plain files that opens from disk, made from the records alone.

    python -m dashboards --results results --out site

Pages load nothing over the network and do not say when they were built: the same records give the same bytes.  Data
travel as scripts that call `Ridgeline.receive(...)`, because a browser does not let a page fetch files from disk.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jinja2
import pandas as pd

from ci.records import derived, store
from ci.records.ledger import causes_in
from ci.trials.trial import Trial
from dashboards import history, machines, overview
from dashboards.blocks import chain_of, newest_files, read_lane
from dashboards.draft import MARKER, Draft, File, SiteError, digest, replacing
from dashboards.history_rows import history_rows
from dashboards.lanes import BLOCK, Lane, slug, tidy
from dashboards.recent import stacked
from dashboards.script import receive, script_json
from dashboards.sources import HeldRows, ReadRows, RowSource, lane_sources
from dashboards.views import SiteInput, View, pull_request
from dashboards.views.listed import VIEWS

HERE = Path(__file__).parent
STATIC = HERE / "static"
PAST = ".cache/site"
"""Where, below a folder of records, a build keeps what lasts of them (`dashboards.past_file`)."""

SOURCES = (HERE, HERE.parent / "ci" / "records", HERE.parent / "ci" / "history")
"""Where the code is that makes the files: with other code they are made again."""

_SHARED = ["static/common.js", "data/site.js", "static/table.js", "static/views/keys.js", "static/views/palette.js"]
_EVENTS = ["static/views/why.js", "static/views/event_words.js", "static/views/event_table.js"]
_HEADLINES = [f"static/{name}.js" for name in ("lanes", "chart_lines", "chart", "views/headlines")]
_KERNEL_SCRIPTS = [
    "values",
    "timeline",
    "lanes",
    "chart_lines",
    "chart",
    "panel",
    "views/page",
    "numbers",
    "steps",
    "together",
    "history",
    "curves",
    "kernel",
]
_KERNEL = [f"static/{name}.js" for name in _KERNEL_SCRIPTS]
SCRIPTS = {
    "index.html": [*_SHARED, *_EVENTS, *_HEADLINES, "static/views/front.js", "static/overview.js"],
    "kernel.html": [*_SHARED, *_EVENTS, "static/views/verified.js", *_KERNEL],
}
"""Scripts of each page, in the order in which they need each other."""

Meanwhile = Callable[[Callable[[], history.SiteHistory]], Callable[[], history.SiteHistory]]

LIMITS = {"spark": overview.SPARK_POINTS, "beside": overview.MOVED_BESIDE_BASELINE, "alone": overview.MOVED_ALONE}
"""Constants that the page names in its help."""


def build(
    results_dir: Path | str,
    out_dir: Path | str,
    repo_url: str | None = None,
    reports: Sequence[Path] = (),
    untouched: bool = False,
    meanwhile: Meanwhile = functools.cache,
) -> Path:
    """Build the site of all records in `results_dir` into `out_dir`, replacing an older site; returns `out_dir`.

    repo_url: where commits are shown, e.g. "https://github.com/ROCm/our-kernels"; without it a commit is only a hash.
    reports: report files of a pull request, for a page of their own.
    untouched: the files of the older site are as they were built (`dashboards.standing`): they need not be read.
    meanwhile: how the history is made beside the rest (`dashboards.apart.apart`); by itself when it is asked for.
    Raises SiteError, and changes nothing, if `out_dir` holds anything but a site.
    """
    results_dir = Path(results_dir)

    @functools.cache  # several pages tell of a machine by its newest record
    def notes_of(machine: str, commit: str, env: str) -> Sequence[Trial]:
        return store.notes(results_dir, machine, commit, env)

    sources, problems, kept = read(results_dir)
    for source in sources:
        if isinstance(source, ReadRows):
            source.newest(BLOCK)  # both halves of the build want these rows
    found = meanwhile(functools.partial(_history, results_dir, sources, kept))
    past, told = history.Awaited(found), tuple(map(pull_request.read, reports))
    site = SiteInput(pd.DataFrame(), past, notes_of, results_dir, told, (), past.peers)
    return _build(site, sources, out_dir, repo_url, problems, kept, untouched)


def _history(results_dir: Path, sources: Sequence[RowSource], kept: Path | None) -> history.SiteHistory:
    """What the records say happened; the rows of it all are not held on to."""
    return history.read(rows_for_history(results_dir, sources, kept), results_dir)


def rows_for_history(results_dir: Path, sources: Sequence[RowSource], kept: Path | None) -> pd.DataFrame:
    """The rows of all machines, derived."""
    cached = [source for source in sources if isinstance(source, ReadRows)]
    if len(cached) == len(sources) > 0:
        return history_rows(cached, _code(), kept)
    return derived.derive(store.load(results_dir))


def read(results_dir: Path) -> tuple[list[RowSource], list[str], Path | None]:
    """The rows of every machine, what could not be used of the records, and a folder for what lasts of them."""
    opened = store.opened(results_dir)
    frames = [store.load(results_dir, machine) for machine in opened.mixed]
    held = [rows for frame in frames if len(frame) for rows in HeldRows.of(tidy(derived.derive(frame)))]
    said = [*opened.problems, *(text for frame in frames for text in frame.attrs.get("problems", []))]
    problems = [text.replace(f"{results_dir}/", "") for text in (*said, *causes_in(results_dir)[1])]
    return [*map(ReadRows, opened.machines), *held], problems, results_dir / PAST if opened.machines else None


def _build(
    site: SiteInput,
    sources: Sequence[RowSource],
    out_dir: Path | str,
    repo_url: str | None,
    problems: Sequence[str],
    kept: Path | None = None,
    untouched: bool = False,
) -> Path:
    out, address = Path(out_dir).absolute(), repository(repo_url)
    with replacing(out, untouched) as draft:
        _write(draft, site, sources, address, problems, kept)
    return out


def _write(
    draft: Draft,
    site: SiteInput,
    sources: Sequence[RowSource],
    repo: str | None,
    problems: Sequence[str],
    kept: Path | None = None,
) -> None:
    """Every file of the site."""
    for path in _static_files():
        draft.add(f"static/{path.relative_to(STATIC).as_posix()}", path.read_bytes())
    code = _code()
    found = [read_lane(source, draft, code, kept) for source in lane_sources(sources)]
    lanes = tuple(lane for lane, _ in found)
    records = dataclasses.replace(site, frame=stacked([lane.frame for lane in lanes] or [pd.DataFrame()]), known=lanes)
    described = [_lane(draft, lane, records, made_of) for lane, made_of in found]
    shown = dict.fromkeys(view for view in VIEWS if view.shown(records))
    for view in sorted(shown, key=lambda one: one.of_history):  # the history is still being made
        shown[view] = _view(draft, view, records)
    kernels = sorted({kernel for lane in records.lanes for kernel in lane.columns.texts["kernel"].present()})
    told = {
        "repo": repo,
        "limits": LIMITS,
        "lanes": described,
        "problems": list(problems),
        "kernels": [{"name": kernel, "slug": slug(kernel)} for kernel in kernels],
    }
    draft.add("data/site.js", b"Ridgeline.site = " + script_json(told) + b";\n")
    for path, content in _pages(draft, kernels, shown, bool(described)):
        draft.add(path, content)
    draft.add("data/README.txt", overview.columns_text().encode())
    draft.add(MARKER, b"Built by Ridgeline from its records; replaced as a whole by the next build.\n")
    draft.finish()


def _static_files() -> list[Path]:
    return [path for path in sorted(STATIC.rglob("*")) if path.is_file()]


def _code() -> str:
    """Digest of the code that makes the files."""
    files = sorted(path for folder in SOURCES for path in folder.rglob("*.py"))
    return digest(b"".join(path.read_bytes() for path in files))


# ---- data -----------------------------------------------------------------------------------------------------------


def _lane(draft: Draft, lane: Lane, site: SiteInput, made_of: str) -> dict[str, Any]:
    """Add the files of what is newest in a lane; return what the pages must know before they load one."""
    facts = machines.describe(lane.frame, site.notes_of)
    kernels = [slug(kernel) for kernel in lane.columns.texts["kernel"].present()]
    paths = list(draft.digests)
    make = functools.partial(_newest, lane, site, facts.broken, paths)
    draft.part(f"{lane.slug}/newest", chain_of(made_of, repr(facts.broken)), make)
    known = {"machine": lane.machine, "env": lane.env, "slug": lane.slug}
    return known | {"title": facts.title, "facts": facts.rows, "kernels": kernels}


def _newest(lane: Lane, site: SiteInput, broken: Sequence[Any], paths: Sequence[str]) -> Iterable[File]:
    return newest_files(lane, site.overviews[lane.slug], broken, paths)


def _view(draft: Draft, view: View, records: SiteInput) -> list[str]:
    """Add the data files and the other files of a view; return the paths of its data."""
    paths = []
    for path, value in view.data(records):
        draft.add(*_data(path, value))
        paths.append(f"data/{path}.js")
    for name, content in view.files(records):
        draft.add(name, content)
    return paths


def _data(path: str, value: Any) -> File:
    return f"data/{path}.js", receive(path, script_json(value))


# ---- pages ----------------------------------------------------------------------------------------------------------


def _pages(draft: Draft, kernels: Sequence[str], views: dict[View, list[str]], any_lane: bool) -> Iterator[File]:
    """Every page.  It names the digest of each file that it loads, so that it changes when what it shows changes."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )

    def page(name: str, data: Iterable[str], scripts: Sequence[str] = (), root: str = "", **values: Any) -> bytes:
        versions = {path[len("data/") : -len(".js")]: draft.digests[path] for path in sorted(data)}
        values |= {"scripts": SCRIPTS.get(name, scripts), "versions": script_json(versions).decode(), "root": root}
        values["address"] = lambda path: f"{root}{path}?v={draft.digests[path]}"
        return (
            templates.get_template(name)
            .render({"styles": (), "lanes": any_lane, "views": list(views)} | values)
            .encode()
        )

    named = _by_name(draft)
    yield "index.html", page("index.html", _loaded(named, "overview", "events", "verdict"))
    for kernel in kernels:
        data = _loaded(named, f"kernel-{slug(kernel)}", f"history-{slug(kernel)}", "events")
        yield f"kernels/{slug(kernel)}.html", page("kernel.html", data, root="../", kernel=kernel, slug=slug(kernel))
    for view, own in views.items():
        data = {*own, *_reading(draft, view)}
        scripts, styles = ([f"static/{name}" for name in names] for names in (view.scripts, view.styles))
        yield f"{view.name}.html", page(view.template, data, [*_SHARED, *scripts], styles=styles, view=view)


def _by_name(draft: Draft) -> dict[str, list[str]]:
    """The data files by their name without folder and suffix."""
    found: dict[str, list[str]] = {}
    for path in draft.digests:
        if path.startswith("data/") and path.endswith(".js"):
            found.setdefault(path.rpartition("/")[2].removesuffix(".js"), []).append(path)
    return found


def _loaded(named: Mapping[str, list[str]], *names: str) -> list[str]:
    return [path for name in names for path in named.get(name, ())]


def _reading(draft: Draft, view: View) -> list[str]:
    patterns = [f"data/{pattern}.js" for pattern in view.reads]
    return [path for path in draft.digests if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)]


def repository(url: str | None) -> str | None:
    """The address under which /commit/HASH is found; SiteError for anything but http and https."""
    if not url:
        return None
    parts, wanted = urlsplit(url), "give one that a browser opens, like https://github.com/OWNER/NAME"
    if parts.scheme not in ("http", "https") or not parts.netloc or re.search(r"[\s\"'<>]", url):
        raise SiteError(f"the repository address is {url!r}; {wanted}")
    return url.rstrip("/").removesuffix(".git")
