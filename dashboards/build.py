"""Build the dashboard: a folder of plain files that opens from disk, made from the records alone.

    python -m dashboards --results results --out site

Pages ask for nothing over the network and hold no time of building: the same records give the same bytes.  Data travel
as scripts that call `Ridgeline.receive(...)`, because a browser does not let a page fetch files from disk.
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

from ci.records import derived as derive
from ci.records import store as records
from dashboards import machines, series

HERE = Path(__file__).parent
MARKER = ".ridgeline-site"
"""File that says a folder was built here and may be replaced."""

SHARED_SCRIPTS = ["static/common.js", "data/site.js", "static/table.js"]
SCRIPTS = {
    "index.html": [*SHARED_SCRIPTS, "static/overview.js"],
    "kernel.html": [
        *SHARED_SCRIPTS,
        *(f"static/{name}.js" for name in ("values", "chart", "panel", "numbers", "history", "curves", "kernel")),
    ],
}
"""Scripts of each page, in the order in which they need each other."""


class SiteError(Exception):
    """The site cannot be built; the text says what to do."""


def build(results_dir: Path | str, out_dir: Path | str, repo_url: str | None = None) -> Path:
    """Build the site of all records in `results_dir` into `out_dir`, replacing an older site; returns `out_dir`.

    repo_url: where commits are shown, e.g. "https://github.com/ROCm/our-kernels"; without it a commit is only a hash.
    Raises SiteError if `out_dir` holds something else than a site, and leaves it alone.
    """
    results_dir = Path(results_dir)
    frame = records.load(results_dir)
    problems = [text.replace(f"{results_dir}/", "") for text in frame.attrs.get("problems", [])]

    def notes_of(machine: str, commit: str, env: str) -> Sequence[Mapping[str, Any]]:
        return records.load_notes(results_dir, machine, commit, env)

    return build_frame(derive.derive(frame), out_dir, repo_url, notes_of=notes_of, problems=problems)


def build_frame(
    frame: pd.DataFrame,
    out_dir: Path | str,
    repo_url: str | None = None,
    *,
    notes_of: machines.NotesOf = machines.no_notes,
    problems: Sequence[str] = (),
) -> Path:
    """Build the site of a frame (columns of `records.load` and `derive.derive`).

    notes_of: (machine, commit, env) -> trials of that record, for the facts about a machine that the frame lacks.
    problems: sentences about records that could not be read; shown on the first page.
    """
    out = Path(out_dir).absolute()
    _check_target(out)
    files = site_files(frame, repository(repo_url), notes_of, problems)
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
) -> dict[str, bytes]:
    """Every file of the site by its path; a pure function of the records."""
    places = series.places(series.tidy(frame)) if len(frame) else []
    files = {
        f"static/{path.relative_to(HERE / 'static').as_posix()}": path.read_bytes()
        for path in sorted((HERE / "static").rglob("*"))
        if path.is_file()
    }
    described = [_place_files(place, notes_of, files) for place in places]
    kernels = sorted({kernel for place in described for kernel in place["kernels"]})
    limits = {"spark": series.SPARK_POINTS, "beside": series.MOVED_BESIDE_BASELINE, "alone": series.MOVED_ALONE}
    site = {
        "repo": repo,
        "limits": limits,
        "places": described,
        "problems": list(problems),
        "kernels": [{"name": kernel, "slug": series.slug(kernel)} for kernel in kernels],
    }
    version = _digest(files, site)
    files["data/site.js"] = b"Ridgeline.site = " + script_json({**site, "version": version}) + b";\n"
    files |= _pages(kernels, version, bool(places))
    files[MARKER] = b"Built by Ridgeline from its records; replaced as a whole by the next build.\n"
    return files


def _place_files(place: series.Place, notes_of: machines.NotesOf, files: dict[str, bytes]) -> dict[str, Any]:
    """Add the data files of a place; return what the pages must know before they load one."""
    facts = machines.describe(place.frame, notes_of)
    overview = series.overview_data(place.frame) | {"broken": facts.broken}
    _add_data(files, f"{place.slug}/overview", overview)
    names: dict[str, str] = {}
    for kernel, rows in place.frame.groupby("kernel", sort=True):
        names[str(kernel)] = f"kernel-{series.slug(str(kernel))}"
        _add_data(files, f"{place.slug}/{names[str(kernel)]}", series.kernel_data(rows))
    return {
        "machine": place.machine,
        "env": place.env,
        "slug": place.slug,
        "title": facts.title,
        "facts": facts.rows,
        "kernels": names,
    }


def _add_data(files: dict[str, bytes], path: str, value: Any) -> None:
    files[f"data/{path}.js"] = b"Ridgeline.receive(" + script_json(path) + b"," + script_json(value) + b");\n"


def _pages(kernels: Sequence[str], version: str, any_place: bool) -> dict[str, bytes]:
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )

    def page(template: str, **values: Any) -> bytes:
        html = jinja.get_template(template).render(
            version=version, scripts=SCRIPTS[template], places=any_place, **values
        )
        return html.encode()

    pages = {"index.html": page("index.html", root="")}
    return pages | {
        f"kernels/{series.slug(kernel)}.html": page("kernel.html", root="../", kernel=kernel) for kernel in kernels
    }


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
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or re.search(r"[\s\"'<>]", url):
        raise SiteError(
            f"the repository address is {url!r}; give one that a browser opens, like https://github.com/OWNER/NAME"
        )
    return url.rstrip("/").removesuffix(".git")


def _digest(files: Mapping[str, bytes], site: Any) -> str:
    """Short digest of all content; it stands behind each address, so that a browser never mixes two builds."""
    whole = hashlib.sha256(json.dumps(site, sort_keys=True).encode())
    for name in sorted(files):
        whole.update(name.encode() + b"\0" + hashlib.sha256(files[name]).digest())
    return whole.hexdigest()[:12]


# ---- putting it in place --------------------------------------------------------------------------------------------


def _check_target(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise SiteError(f"{out} is not a folder; give another --out")
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).exists():
        raise SiteError(
            f"{out} holds files that are no Ridgeline site, and building would replace them; "
            "give an empty or new folder with --out"
        )


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
