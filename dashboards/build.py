"""Build the dashboard: a folder of plain files that opens from disk, made from the records alone.

    python -m dashboards --results results --out site

Pages load nothing over the network and do not say when they were built: the same records give the same bytes.  Data
travel as scripts that call `Ridgeline.receive(...)`, because a browser does not let a page fetch files from disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jinja2
import pandas as pd

from ci.records import derived, store
from ci.trials.trial import Trial
from dashboards import machines, overview
from dashboards.kernel_page import kernel_data
from dashboards.lanes import Lane, slug, tidy
from dashboards.views import SiteInput, View
from dashboards.views.listed import VIEWS

HERE = Path(__file__).parent
STATIC = HERE / "static"
MARKER = ".ridgeline-site"
"""File that says a folder was built here and may be replaced."""

_SHARED = ["static/common.js", "data/site.js", "static/table.js"]
_KERNEL = [f"static/{name}.js" for name in ("values", "chart", "panel", "numbers", "history", "curves", "kernel")]
SCRIPTS = {"index.html": [*_SHARED, "static/overview.js"], "kernel.html": [*_SHARED, *_KERNEL]}
"""Scripts of each page, in the order in which they need each other."""

LIMITS = {"spark": overview.SPARK_POINTS, "beside": overview.MOVED_BESIDE_BASELINE, "alone": overview.MOVED_ALONE}
"""Constants that the page names in its help."""


class SiteError(Exception):
    """The site cannot be built; the text says what to do."""


def build(results_dir: Path | str, out_dir: Path | str, repo_url: str | None = None) -> Path:
    """Build the site of all records in `results_dir` into `out_dir`, replacing an older site; returns `out_dir`.

    repo_url: where commits are shown, e.g. "https://github.com/ROCm/our-kernels"; without it a commit is only a hash.
    Raises SiteError, and changes nothing, if `out_dir` holds anything but a site.
    """
    results_dir = Path(results_dir)
    frame = store.load(results_dir)
    problems = [text.replace(f"{results_dir}/", "") for text in frame.attrs.get("problems", [])]

    def notes_of(machine: str, commit: str, env: str) -> Sequence[Trial]:
        return store.notes(results_dir, machine, commit, env)

    return build_frame(
        derived.derive(frame), out_dir, repo_url, notes_of=notes_of, problems=problems, results_dir=results_dir
    )


def build_frame(
    frame: pd.DataFrame,
    out_dir: Path | str,
    repo_url: str | None = None,
    *,
    notes_of: machines.NotesOf = machines.no_notes,
    problems: Sequence[str] = (),
    results_dir: Path | None = None,
) -> Path:
    """Build the site of a frame (columns of `ci.records.store.load` and `ci.records.derived.derive`).

    notes_of: (machine, commit, env) -> trials of that record, for the facts about a machine that the frame lacks.
    problems: sentences about records that could not be read; shown on the first page.
    results_dir: where the records lie, for views that read more of them than the frame.
    """
    out = Path(out_dir).absolute()
    _check_target(out)
    files = site_files(frame, repository(repo_url), notes_of, problems, results_dir)
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        for name, content in files.items():
            path = draft / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        draft.chmod(0o777 & ~_umask())  # mkdtemp makes a folder that a web server cannot read
        _swap(draft, out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return out


def site_files(
    frame: pd.DataFrame,
    repo: str | None = None,
    notes_of: machines.NotesOf = machines.no_notes,
    problems: Sequence[str] = (),
    results_dir: Path | None = None,
) -> dict[str, bytes]:
    """Every file of the site by its path; a pure function of the records."""
    records = SiteInput(tidy(frame) if len(frame) else frame, None, notes_of, results_dir)
    files = {f"static/{path.relative_to(STATIC).as_posix()}": path.read_bytes() for path in _static_files()}
    described = [_lane_files(lane, notes_of, files) for lane in records.lanes]
    _view_files(records, files)
    kernels = sorted({kernel for lane in described for kernel in lane["kernels"]})
    site = {
        "repo": repo,
        "limits": LIMITS,
        "lanes": described,
        "problems": list(problems),
        "kernels": [{"name": kernel, "slug": slug(kernel)} for kernel in kernels],
    }
    version = _digest(files, site)
    files["data/site.js"] = b"Ridgeline.site = " + script_json({**site, "version": version}) + b";\n"
    files |= _pages(kernels, version, bool(described))
    files[MARKER] = b"Built by Ridgeline from its records; replaced as a whole by the next build.\n"
    return files


def _static_files() -> list[Path]:
    return [path for path in sorted(STATIC.rglob("*")) if path.is_file()]


def _lane_files(lane: Lane, notes_of: machines.NotesOf, files: dict[str, bytes]) -> dict[str, Any]:
    """Add the data files of a lane; return what the pages must know before they load one."""
    facts = machines.describe(lane.frame, notes_of)
    _add_data(files, f"{lane.slug}/overview", overview.overview_data(lane.frame) | {"broken": facts.broken})
    names: dict[str, str] = {}
    for kernel, rows in lane.frame.groupby("kernel", sort=True):
        names[str(kernel)] = f"kernel-{slug(str(kernel))}"
        _add_data(files, f"{lane.slug}/{names[str(kernel)]}", kernel_data(rows))
    known = {"machine": lane.machine, "env": lane.env, "slug": lane.slug}
    return known | {"title": facts.title, "facts": facts.rows, "kernels": names}


def _add_data(files: dict[str, bytes], path: str, value: Any) -> None:
    files[f"data/{path}.js"] = b"Ridgeline.receive(" + script_json(path) + b"," + script_json(value) + b");\n"


def _view_files(records: SiteInput, files: dict[str, bytes]) -> None:
    """Add the data files and the other files of every view."""
    for view in VIEWS:
        for path, value in view.data(records):
            _add_data(files, path, value)
        files.update(view.files(records))


def _pages(kernels: Sequence[str], version: str, any_lane: bool) -> dict[str, bytes]:
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )

    def page(name: str, scripts: Sequence[str] = (), styles: Sequence[str] = (), **values: Any) -> bytes:
        values |= {"version": version, "scripts": SCRIPTS.get(name, scripts), "styles": styles, "lanes": any_lane}
        return templates.get_template(name).render(views=VIEWS, **values).encode()

    def view_page(view: View) -> bytes:
        scripts, styles = ([f"static/{name}" for name in names] for names in (view.scripts, view.styles))
        return page(view.template, [*_SHARED, *scripts], styles, root="", view=view)

    of_kernels = {f"kernels/{slug(k)}.html": page("kernel.html", root="../", kernel=k) for k in kernels}
    return {"index.html": page("index.html", root="")} | of_kernels | {f"{v.name}.html": view_page(v) for v in VIEWS}


def script_json(value: Any) -> bytes:
    """JSON that is safe inside a script, wherever its text came from; NaN is an error, not a token."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":  # these occur in strings only; non-ASCII is escaped already
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("ascii")


def repository(url: str | None) -> str | None:
    """The address under which /commit/HASH is found; SiteError for anything but http and https."""
    if not url:
        return None
    parts, wanted = urlsplit(url), "give one that a browser opens, like https://github.com/OWNER/NAME"
    if parts.scheme not in ("http", "https") or not parts.netloc or re.search(r"[\s\"'<>]", url):
        raise SiteError(f"the repository address is {url!r}; {wanted}")
    return url.rstrip("/").removesuffix(".git")


def _digest(files: Mapping[str, bytes], site: Any) -> str:
    """Short digest of all content.  Every address ends in it, so that a browser never mixes two builds."""
    whole = hashlib.sha256(json.dumps(site, sort_keys=True).encode())
    for name in sorted(files):
        whole.update(name.encode() + b"\0" + hashlib.sha256(files[name]).digest())
    return whole.hexdigest()[:12]


# ---- putting it in place --------------------------------------------------------------------------------------------


def _check_target(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise SiteError(f"{out} is not a folder; give another --out")
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).exists():
        advice = "building would replace them; give an empty or new folder with --out"
        raise SiteError(f"{out} holds files that are not a Ridgeline site, and {advice}")


def _swap(draft: Path, out: Path) -> None:
    """Put `draft` where `out` is; if that fails, `out` is as before."""
    old = draft.with_name(f"{draft.name}.old")
    if out.exists():
        os.rename(out, old)
    try:
        os.rename(draft, out)
    except OSError:
        if old.exists():
            os.rename(old, out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
