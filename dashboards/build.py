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
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jinja2
import pandas as pd

from ci.records import derived, store, unmeasured
from ci.records.ledger import causes_in, sweeps_in
from ci.sweeps import measured
from dashboards import overview, sources
from dashboards.draft import MARKER, Draft, File, SiteError, digest, replacing
from dashboards.lanes import by_series, commits, lane_slug, parts, slug, tidy
from dashboards.overview import kernel_block, kernel_head, paired_block
from dashboards.sources import Lane, LaneSource, Rows, RowSource, digest_of, lane_sources
from dashboards.values import minute, receive, script_json, told
from dashboards.views import SiteInput, View, as_csv, beside, describe, events, machines, newest, pull_request, studies

VIEWS: tuple[View, ...] = (
    *(events.VIEW, newest.COMPARE, newest.BACKENDS, newest.SHAPES, newest.ROOFLINE),
    *(
        machines.SCALING,
        machines.SUSTAINED,
        studies.VIEW,
        studies.SWEEPS,
        machines.VIEW,
        machines.CHECKS,
        pull_request.VIEW,
    ),
)
"""Every page beside the first one and those of the kernels, in the order of the navigation."""

HERE = Path(__file__).parent
STATIC = HERE / "static"
"""Where, below a folder of records, a build keeps what lasts of them (`dashboards.sources`)."""

SOURCES = (HERE, HERE.parent / "ci" / "records", HERE.parent / "ci" / "history")
"""Where the code is that makes the files: with other code they are made again."""

_SHARED = ["static/common.js", "data/site.js", "static/table.js", "static/views/keys.js"]
_INDEX = ["views/event_words", "chart", "overview"]
_KERNEL = ["views/event_words", "views/checks", "values", "timeline", "chart", "panel", "history", "kernel"]
SCRIPTS = {
    "index.html": [*_SHARED, *(f"static/{name}.js" for name in _INDEX)],
    "kernel.html": [*_SHARED, *(f"static/{name}.js" for name in _KERNEL)],
}
"""Scripts of each page, in the order in which they need each other."""

Meanwhile = Callable[[Callable[[], Any]], Callable[[], Any]]
Early = Mapping[str, Callable[[], list[tuple[str, Any]]]]
"""What views make beside the rest, by their names."""

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
    untouched: the files of the older site are as they were built (`dashboards.draft`): they need not be read.
    meanwhile: how the history, and views of the folder alone, are made beside the rest (`sources.made_apart`); without
    it when they are asked for.
    Raises SiteError, and changes nothing, if `out_dir` holds anything but a site.
    """
    results, out, address = Path(results_dir), Path(out_dir).absolute(), repository(repo_url)
    found, problems, kept = read(results)
    measured.gathered(sweeps_in(results)[0])  # likewise
    past = meanwhile(lambda: sources.read_history(derived.derive(store.load(results)), results))
    notes_of = functools.cache(
        lambda *place: store.trials(results, store.Place(*place))
    )  # several pages ask for the newest
    site = SiteInput(results, past, notes_of, tuple(map(pull_request.read, reports)))
    apart = [view for view in VIEWS if view.of_folder and view.shown(site)]
    made = meanwhile(lambda: {view.name: told(list(view.make(site))) for view in apart})
    early = {view.name: lambda name=view.name: made()[name] for view in apart}
    with replacing(out, untouched) as draft:
        write(draft, site, found, address, problems, kept, early)
    return out


def read(results_dir: Path) -> tuple[list[RowSource], list[str], Path | None]:
    """The rows of every machine, what could not be used of the records, and a folder for what lasts of them."""
    frame = store.load(results_dir)
    found = sources.held(tidy(derived.derive(frame))) if len(frame) else []
    said = [*frame.attrs["problems"], *causes_in(results_dir)[1]]
    return found, [text.replace(f"{results_dir}/", "") for text in said], None


def write(
    draft: Draft,
    site: SiteInput,
    found: Sequence[RowSource],
    repo: str | None = None,
    problems: Sequence[str] = (),
    kept: Path | None = None,
    early: Early = types.MappingProxyType({}),
) -> None:
    """Every file of the site of some rows.  site: all else of it.  kept: folder for what lasts of the rows, or None."""
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            draft.add(f"static/{path.relative_to(STATIC).as_posix()}", path.read_bytes())
    code = _code()
    lanes = [_read_lane(source, draft, code, kept) for source in lane_sources(found)]
    frames = [lane.frame for lane, _ in lanes] or [tidy(derived.derive(store.load(site.results)))]
    site = dataclasses.replace(site, lanes=[lane for lane, _ in lanes], frame=sources.stacked(frames))
    described = [_lane(draft, lane, site, made_of) for lane, made_of in lanes]
    shown = dict.fromkeys(view for view in VIEWS if view.shown(site))
    for view in sorted(shown, key=lambda one: (one.of_history, one.of_folder)):  # these are still being made
        shown[view] = _view(draft, early[view.name]() if view.name in early else view.make(site))
    kernels = sorted({kernel for lane, _ in lanes for kernel in lane.kernels})
    page = {
        "repo": repo,
        "limits": LIMITS,
        "lanes": described,
        "problems": list(problems),
        "kernels": [{"name": kernel, "slug": slug(kernel)} for kernel in kernels],
    }
    draft.add("data/site.js", b"Ridgeline.site = " + script_json(page) + b";\n")
    for path, content in _pages(draft, kernels, shown, bool(described)):
        draft.add(path, content)
    draft.add("data/README.txt", overview.columns_text().encode())
    draft.add(MARKER, b"Built by Ridgeline from its records; replaced as a whole by the next build.\n")
    draft.finish()


def _code() -> str:
    """Digest of the code that makes the files."""
    files = sorted(path for folder in SOURCES for path in folder.rglob("*.py"))
    return digest(b"".join(path.read_bytes() for path in files))


# ---- data -----------------------------------------------------------------------------------------------------------


def _read_lane(source: LaneSource, draft: Draft, code: str, kept: Path | None) -> tuple[Lane, str]:
    """Make the files of the blocks that do not stand, and read as much as says what is newest; a digest of it all.

    code: digest of the code that makes the files.  kept: folder for what lasts of full blocks, None to keep nothing.
    """
    folder = lane_slug(source.machine, source.env)

    def block(n: int, made_of: str, rows: Rows) -> None:
        draft.part(f"{folder}/{n}", digest_of(code, made_of), lambda: _block(f"{folder}/{n}", rows()))

    file = kept / f"{folder}.arrow" if kept else None
    rows, counts, made_of = sources.carried(source, source.rows.rows, code, file, sources.lasting, block)
    return Lane(source.machine, source.env, rows, counts), made_of


def _block(path: str, frame: pd.DataFrame) -> Iterator[File]:
    """The files of each kernel in a block of commits, and what was timed in turn there."""
    rows = by_series(frame)
    dated = [(commit, minute(date), env) for commit, date, env in commits(frame).itertuples(index=False)]
    yield _data(f"{path}/paired", paired_block(rows, dated))
    for part in parts(rows, "kernel"):
        yield from _with_json(f"{path}/kernel-{slug(part['kernel'][0])}", kernel_block(part, dated))


def _lane(draft: Draft, lane: Lane, site: SiteInput, made_of: str) -> dict[str, Any]:
    """Add the files of what is newest in a lane; return what the pages must know before they load one."""
    facts = describe(lane.frame, site.notes_of)
    paths = list(draft.digests)
    others = [dataclasses.astuple(one) for one in unmeasured.read(site.results / lane.machine / unmeasured.NAME)]
    told_too = {"broken": facts.broken, "unmeasured": others}
    make = functools.partial(_newest, lane, site.overviews, told_too, paths)
    draft.part(f"{lane.slug}/newest", digest_of(made_of, repr(told_too)), make)
    known = {"machine": lane.machine, "env": lane.env, "slug": lane.slug}
    return known | {"title": facts.title, "facts": facts.rows, "kernels": list(map(slug, lane.kernels))}


def _newest(
    lane: Lane, overviews: Mapping[str, dict[str, Any]], more: Mapping[str, Any], paths: Sequence[str]
) -> Iterator[File]:
    """What is newest in a lane: the overview, and the head of every kernel.

    more: what broke, and commits without a measurement of their own (ci.records.unmeasured).  paths: of all files.
    """
    shown, numbers = told(overviews[lane.slug]), overview.newest(lane.series)
    yield _data(f"{lane.slug}/overview", shown | more)
    yield from beside(f"{lane.slug}/overview", numbers)
    for part in parts(lane.series.rows, "kernel"):
        kernel = part["kernel"][0]
        name = f"kernel-{slug(kernel)}"
        pattern = re.compile(rf"data/({re.escape(lane.slug)}/(\d+)/{re.escape(name)})\.js")
        blocks = sorted((int(found[2]), found[1]) for found in map(pattern.fullmatch, paths) if found)
        own = [row for row in shown["rows"] if row["kernel"] == kernel]
        head = kernel_head(part, [path for _, path in blocks], shown["commits"], own)
        yield from _with_json(f"{lane.slug}/{name}", head)
        listed = [row for row in numbers if row["kernel"] == kernel]
        yield f"data/{lane.slug}/{name}.csv", as_csv(listed, list(numbers[0]))


def _with_json(path: str, value: Any) -> Iterator[File]:
    """A data file, and the same as JSON."""
    content = script_json(value)
    yield f"data/{path}.js", receive(path, content)
    yield f"data/{path}.json", content + b"\n"


def _view(draft: Draft, made: Iterable[tuple[str, Any]]) -> list[str]:
    """Add the data files and the other files of a view; return the paths of its data."""
    paths = []
    for path, value in made:
        if isinstance(value, bytes):
            draft.add(path, value)
        else:
            draft.add(*_data(path, told(value)))
            paths.append(f"data/{path}.js")
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

    named: dict[str, list[str]] = {}  # data files by their name without folder and suffix
    for path in draft.digests:
        if path.startswith("data/") and path.endswith(".js"):
            named.setdefault(path.rpartition("/")[2].removesuffix(".js"), []).append(path)

    def loaded(*names: str) -> list[str]:
        return [path for name in names for path in named.get(name, ())]

    yield "index.html", page("index.html", loaded("overview", "events", "verdict"))
    for kernel in kernels:
        data = loaded(f"kernel-{slug(kernel)}", f"history-{slug(kernel)}", "events")
        yield f"kernels/{slug(kernel)}.html", page("kernel.html", data, root="../", kernel=kernel, slug=slug(kernel))
    for view, own in views.items():
        others = [f"data/{pattern}.js" for pattern in view.reads]
        data = {*own, *(path for path in draft.digests if any(fnmatch.fnmatchcase(path, one) for one in others))}
        scripts, styles = ([f"static/{name}" for name in names] for names in (view.scripts, view.styles))
        yield f"{view.name}.html", page(view.template, data, [*_SHARED, *scripts], styles=styles, view=view)


def repository(url: str | None) -> str | None:
    """The address under which /commit/HASH is found; SiteError for anything but http and https."""
    if not url:
        return None
    parts, wanted = urlsplit(url), "give one that a browser opens, like https://github.com/OWNER/NAME"
    if parts.scheme not in ("http", "https") or not parts.netloc or re.search(r"[\s\"'<>]", url):
        raise SiteError(f"the repository address is {url!r}; {wanted}")
    return url.rstrip("/").removesuffix(".git")
