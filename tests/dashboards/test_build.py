"""The site as files: the same records give the same bytes, text stays text, and no foreign file is replaced."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ci.records import store
from ci.records import store as records
from dashboards import __main__ as program
from dashboards import build, draft, lanes
from dashboards.__main__ import main
from dashboards.values import script_json
from dashboards.views import SiteInput, View
from tests.ci import made_trials as trials
from tests.dashboards import made_site, synthetic

ROOT = Path(__file__).parents[2]
HOSTILE = "</script><img src=x onerror=window.pwned=1>\"'&\u2028{{7*7}}`${1}`\\"


def received(files: dict[str, bytes], path: str) -> Any:
    """The value a data file hands to the page."""
    text = files[f"data/{path}.js"].decode()
    head = f'Ridgeline.receive("{path}",'
    assert text.startswith(head)
    return json.loads(text.removeprefix(head).removesuffix(");\n"))


def site_of(files: dict[str, bytes]) -> Any:
    return json.loads(files["data/site.js"].decode().removeprefix("Ridgeline.site = ").removesuffix(";\n"))


def hostile(commits: int = 3) -> pd.DataFrame:
    """A history in which every text of a record tries to become markup."""
    frame = synthetic.history(commits, synthetic.CASES[:2], machines=["h200x2-1a2b3c4d"])
    for column in (
        "machine",
        "device",
        "market_name",
        "env",
        "kernel",
        "backend",
        "case",
        "tier",
        "dtype",
        "yardstick",
    ):
        frame[column] = frame[column].astype(str) + HOSTILE
    frame = synthetic.spoil(frame, frame["backend"].str.startswith("gluon"), "wrong", HOSTILE)
    frame.loc[frame["commit"] == frame["commit"].iloc[0], "commit"] = HOSTILE
    return frame


def small(commits: int = 2) -> pd.DataFrame:
    """A GEMM on one machine: enough to test what happens to files."""
    return synthetic.history(commits, synthetic.CASES[:1], machines=["h200x2-1a2b3c4d"])


# ---- the same records, the same site --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_records_give_the_same_bytes_in_any_order_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = synthetic.lively(8)
    files = made_site.site_files(frame)
    monkeypatch.setattr("time.time", lambda: 4e9)
    assert made_site.site_files(frame.sample(frac=1, random_state=1)) == files


def addresses(files: dict[str, bytes], page: str) -> dict[str, str]:
    """Digest by path of every file that a page names or loads."""
    text = html.unescape(files[page].decode())
    named = {path.removeprefix("../"): version for path, version in re.findall(r'"([^"]+)\?v=([0-9a-f]{12})"', text)}
    loaded = json.loads(re.search(r'data-versions="(\{.*?\})"', text)[1])
    return named | {f"data/{path}.js": version for path, version in loaded.items()}


@pytest.mark.slow
def test_every_file_a_page_names_is_there_and_its_address_carries_its_digest(lively: dict[str, bytes]) -> None:
    files = lively
    for page in [name for name in files if name.endswith(".html")]:
        for path, version in addresses(files, page).items():
            assert draft.digest(files[path]) == version, f"{page} names {path}"
        for address in re.findall(r'(?:src|href)="([^"#:]+?)(?:\?v=[^"]*)?"', files[page].decode()):
            assert os.path.normpath(Path(page).parent / address) in files, f"{page} names {address}"
    assert "data/h200x2-1a2b3c4d/kernel-gemm.js" in addresses(files, "kernels/gemm.html")
    assert "data/h200x2-1a2b3c4d/overview.js" in addresses(files, "index.html")


@pytest.mark.slow
def test_a_record_changes_only_the_pages_and_files_that_show_it() -> None:
    frame = synthetic.history(4, machines=["h200x2-1a2b3c4d", "mi300x-8-0f3a9c1e"])
    last = frame["commit"].drop_duplicates().iloc[-1]
    new = (frame["commit"] == last) & (frame["machine"] == "h200x2-1a2b3c4d") & (frame["kernel"] == "softmax")
    old = frame["commit"] != last
    before, after = (made_site.site_files(frame[rows]) for rows in (old, old | new))
    changed = {path for path in after if after[path] != before.get(path)}
    changed = {path for path in changed if Path(path).stem not in {view.name for view in build.VIEWS}}
    assert {path for path in changed if "mi300x" in path or "gemm" in path} == set()
    shown = {f"data/h200x2-1a2b3c4d/{name}" for name in ("kernel-softmax.js", "kernel-softmax.csv", "overview.js")}
    assert changed >= {"kernels/softmax.html", "index.html", draft.PARTS, *shown}


@pytest.fixture(scope="module")
def lively() -> dict[str, bytes]:
    return made_site.site_files(synthetic.lively(5))


def test_nothing_is_loaded_from_elsewhere(lively: dict[str, bytes]) -> None:
    for name, content in lively.items():
        if re.fullmatch(r"static/echarts/(LICENSE.*|NOTICE)", name):
            continue  # texts that no page loads
        names = (b"http://www.w3.org/2000/svg", b"http://www.w3.org/2005/Atom")  # of formats; nothing loads them
        addresses = re.findall(rb"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"']*", content)
        assert [a for a in addresses if a not in names] == [], name


@pytest.mark.slow
def test_the_weight_of_a_page_grows_by_less_than_40_bytes_a_point() -> None:
    cases = [synthetic.gemm(f"m{64 << i}", 64 << i, 4096, 4096) for i in range(5)]
    frame = synthetic.history(1000, cases, machines=["mi300x-8-0f3a9c1e"])
    files = made_site.site_files(frame)
    page = [files[path] for path in files if re.fullmatch(r"data/mi300x-8-0f3a9c1e/(\d+/)?kernel-gemm.js", path)]
    assert len(page) == 1 + -(-1000 // lanes.BLOCK)
    assert sum(map(len, page)) < 40 * len(frame) + 100_000  # the second term: 1,000 hashes and dates


# ---- odd records ----------------------------------------------------------------------------------------------------


def test_no_records_make_a_page_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    for results in (tmp_path / "results", tmp_path / "nowhere"):
        site = build.build(results, tmp_path / "site")
        assert "There are no records yet" in (site / "index.html").read_text()
        assert "ridgeline run" in (site / "index.html").read_text()
        assert "There are no records yet" in (site / "backends.html").read_text()


def test_infinities_and_missing_numbers_become_holes() -> None:
    frame = synthetic.history(3, machines=["h200x2-1a2b3c4d"])
    frame.loc[::2, ["seconds", "seconds_low", "tflops", "gbs", "busbw", "algbw", "peak_share", "baseline_ratio"]] = (
        np.nan
    )
    frame.loc[1::4, "seconds_high"] = np.inf
    for name, content in made_site.site_files(frame).items():
        assert not re.search(rb"\b(NaN|Infinity)\b", content) or name.startswith("static/"), name


def test_missing_costs_tiers_and_dates() -> None:
    frame = synthetic.history(3, synthetic.CASES[:1])
    costs = [
        "flops",
        "hbm_bytes",
        "link_bytes",
        "payload_bytes",
        "tflops",
        "gbs",
        "peak_share",
        "date",
        "tier",
        "dtype",
    ]
    frame[costs] = None
    data = received(made_site.site_files(frame), "h200x2-1a2b3c4d/overview")
    assert {row["rate"] for row in data["rows"]} == {"time"}
    assert data["rows"][0]["value"] > 0


# ---- texts from records ---------------------------------------------------------------------------------------------


def test_texts_never_become_markup_or_paths() -> None:
    files = made_site.site_files(hostile(), problems=[HOSTILE])
    for name, content in files.items():
        assert ".." not in Path(name).parts
        assert re.fullmatch(r"[A-Za-z0-9_./-]+", name), name
        if name.startswith("data/") and name.endswith(".js"):
            assert not re.search(rb"[<>&]|\xe2\x80\xa8", content), name
        if name.endswith(".html"):
            assert b"<img" not in content
            digests = rb"\?v=[0-9a-f]+|&#34;:&#34;[0-9a-f]+|kernels?-?/?[a-z0-9-]*"
            assert b"49" not in re.sub(digests, b"", content), "a template ran a text"


def test_hostile_texts_arrive_unchanged() -> None:
    files = made_site.site_files(hostile())
    shown = received(files, site_of(files)["lanes"][0]["slug"] + "/overview")
    assert {row["why"] for row in shown["rows"]} == {HOSTILE, ""}
    assert shown["rows"][0]["kernel"] == "gemm" + HOSTILE


@pytest.mark.parametrize("url", ["javascript:alert(1)", "git@github.com:a/b.git", "https://", 'https://x/"onclick='])
def test_a_repository_that_no_browser_opens_is_refused(url: str) -> None:
    with pytest.raises(build.SiteError, match="https://github.com/OWNER/NAME"):
        build.repository(url)


def test_a_repository_is_linked_without_its_suffix() -> None:
    assert build.repository("https://github.com/a/b.git/".rstrip("/")) == "https://github.com/a/b"
    assert build.repository("https://example.org/a/b/") == "https://example.org/a/b"
    assert build.repository(None) is None


# ---- putting it in place --------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_a_site_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("ten years")
    with pytest.raises(build.SiteError, match="not a Ridgeline site"):
        made_site.build_frame(small(1), tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("thesis.tex", "link"):
        with pytest.raises(build.SiteError, match="is not a folder"):
            made_site.build_frame(small(1), tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "thesis.tex"]


@pytest.mark.parametrize("failing", ["write", "rename"])
def test_a_failure_leaves_the_older_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    site = made_site.build_frame(small(2), tmp_path / "site")
    before = (site / "index.html").read_bytes()

    def no_space(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    if failing == "write":
        monkeypatch.setattr(Path, "write_bytes", no_space)
    else:
        rename = os.rename
        monkeypatch.setattr(draft, "_exchanged", lambda one, other: False)  # as on NFS
        monkeypatch.setattr(
            os, "rename", lambda a, b: no_space() if Path(b) == site and ".old" not in str(a) else rename(a, b)
        )
    with pytest.raises(OSError, match="No space left"):
        made_site.build_frame(small(3), site)
    monkeypatch.undo()
    assert (site / "index.html").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize("exchanged", [True, False])
def test_a_site_takes_the_place_of_another_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanged: bool
) -> None:
    (tmp_path / "site").mkdir()  # an empty folder is taken
    site = made_site.build_frame(small(2), tmp_path / "site")
    (site / "kernels" / "of_yesterday.html").write_text("old")
    if not exchanged:
        monkeypatch.setattr(draft, "_exchanged", lambda one, other: False)
    made_site.build_frame(small(3), site)
    built = made_site.build_frame(small(3), tmp_path / "fresh")
    assert whole(site) == whole(built)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh", "site"]


def test_what_a_killed_build_left_is_put_right_by_the_next(tmp_path: Path) -> None:
    """The site that it had put aside comes back, and its draft goes once it is old; a draft that is held stays."""
    site = made_site.build_frame(small(2), tmp_path / "site")
    before = (site / "index.html").read_bytes()
    site.rename(tmp_path / f".site{draft.DRAFT}abc{draft.OLD}")
    for name in ("abc", "held"):
        (tmp_path / f".site{draft.DRAFT}{name}").mkdir()
        os.utime(tmp_path / f".site{draft.DRAFT}{name}", (0, 0))
    with draft._held(tmp_path / f".site{draft.DRAFT}held") as alone:
        assert alone
        draft._take_back(site)
    assert (site / "index.html").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".site{draft.DRAFT}held", "site"]


def test_a_web_server_may_read_the_site(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        site = made_site.build_frame(small(1), tmp_path / "site")
    finally:
        os.umask(mask)
    assert site.stat().st_mode & 0o777 == 0o755
    assert all(path.stat().st_mode & 0o044 for path in site.rglob("*"))


# ---- from real records ----------------------------------------------------------------------------------------------


def test_a_site_from_recorded_trials(tmp_path: Path) -> None:
    broken = [{"module": "kernels.moe", "reason": "ModuleNotFoundError: No module named 'aiter'"}]
    unsupported = trials.failed("unsupported", "needs 96 KiB of LDS")
    cases = {
        "m16": {"head/triton": trials.ok(), "head/blas": trials.ok([t / 2 for t in trials.TIMES])},
        "m64": {"head/triton": unsupported, "head/blas": trials.ok()},
    }
    line = trials.trial(cases, trees={"head": trials.tree(broken=broken)})
    results = tmp_path / "results"
    records.record([trials.write(tmp_path / "a.jsonl", line)], results)
    (results / trials.MACHINE["name"] / "deadbeef-py3.12.json").write_text('{"torn"')
    site = build.build(results, tmp_path / "site", "https://github.com/a/b")
    files = {path.relative_to(site).as_posix(): path.read_bytes() for path in site.rglob("*") if path.is_file()}
    described = site_of(files)
    facts = dict(described["lanes"][0]["facts"])
    wanted = {"device": "2 × NVIDIA H200", "SMs": "132", "power cap": "700 W", "driver": "570.1"}
    wanted |= {"torch": "2.11.0+cu130", "Triton": "3.6.0", "CUDA": "13.0"}
    assert facts | wanted == facts
    assert len(described["problems"]) == 1
    assert described["problems"][0].startswith(f"{trials.MACHINE['name']}/deadbeef-py3.12.json: torn")
    shown = received(files, f"{trials.MACHINE['name']}/overview")
    assert shown["broken"] == [{"module": "kernels.moe", "why": "ModuleNotFoundError: No module named 'aiter'"}]
    assert [(gap["case"], gap["backend"], gap["why"]) for gap in shown["absent"]] == [
        ("m64", "triton", "needs 96 KiB of LDS")
    ]
    row = shown["rows"][0]
    assert (row["case"], row["rate"], row["baseline_name"]) == ("m16", "tflops", "blas")
    assert row["value"] == pytest.approx(1.0)  # 1 GFLOP in 1 ms
    assert row["ratio"] == pytest.approx(0.5)


# ---- command line ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_example_of_the_help_runs(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "dashboards", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    example = next(line.strip() for line in shown.stdout.splitlines() if line.startswith("  python -m dashboards"))
    words = shlex.split(example)[1:]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path / 'site'}\n"
    assert (tmp_path / "site" / "index.html").exists()


def test_an_error_is_one_sentence_and_exit_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("ten years")
    assert main(["--results", str(tmp_path / "results"), "--out", str(tmp_path)]) == 3
    assert capsys.readouterr().err.startswith(f"error: {tmp_path} holds files")


# ---- looks ----------------------------------------------------------------------------------------------------------


def _colours(block: str) -> dict[str, tuple[float, ...]]:
    found = re.findall(r"--([a-z0-9-]+): #([0-9a-f]{3,6});", block)
    wide = {name: "".join(c * 2 for c in value) if len(value) == 3 else value for name, value in found}
    return {name: tuple(int(value[i : i + 2], 16) / 255 for i in (0, 2, 4)) for name, value in wide.items()}


def _contrast(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """WCAG 2.2, "contrast ratio"."""

    def luminance(colour: tuple[float, ...]) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_texts_and_lines_stand_out_in_light_dark_and_print() -> None:
    """WCAG AA: 4.5 for text, 3 for graphics."""
    sheet = (build.HERE / "static" / "style.css").read_text()
    blocks = [_colours(block) for block in re.findall(r":root \{(.*?)\}", sheet, re.S)]
    assert len(blocks) == 3
    for colours in blocks:
        for ground in (colours["ground"], colours["raised"], colours["hover"]):
            for name in ("text", "soft", "link", "good", "bad"):
                assert _contrast(colours[name], ground) >= 4.5, name
            for name in (*(f"series-{n}" for n in range(6)), "baseline"):
                assert _contrast(colours[name], ground) >= 3, name


def test_a_script_of_ours_is_short_enough_to_read() -> None:
    for path in (build.HERE / "static").glob("*.js"):
        assert len(path.read_text().splitlines()) < 700, path.name


def test_markup_is_never_made_from_text() -> None:
    """The scripts build elements; nothing that turns text into markup or code is used."""
    for path in (build.HERE / "static").glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", path.read_text()
        ), path.name


# Building again: what is taken over from the site that stands, and what is made anew; texts that no page can carry.


@pytest.fixture
def _own_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the views, which are made at every build."""
    monkeypatch.setattr(build, "VIEWS", ())


def whole(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, _own_pages: None) -> list[str]:
    """Kernels whose blocks were made, not taken over."""
    found: list[str] = []
    make = build.kernel_block

    def noted(rows: Any, commits: Any) -> Any:
        found.append(rows["kernel"][0])
        return make(rows, commits)

    monkeypatch.setattr(build, "kernel_block", noted)
    return found


def grown() -> tuple[pd.DataFrame, pd.DataFrame]:
    """A history, and the same with one more commit of softmax on one machine."""
    frame = synthetic.lively(6)
    last = frame["commit"] == frame.loc[frame["date"].idxmax(), "commit"]
    new = (frame["machine"] == "h200x2-1a2b3c4d") & (frame["kernel"] == "softmax")
    return frame[~last], frame[~last | new]


@pytest.mark.slow
def test_building_again_gives_the_same_bytes_as_building_afresh(tmp_path: Path, made: list[str]) -> None:
    before, after = grown()
    made_site.build_frame(before, tmp_path / "site")
    made.clear()
    made_site.build_frame(after, tmp_path / "site")
    assert made == ["all_gather", "gemm", "gemm_all_scatter", "rms_norm", "softmax"], "on one machine only"
    made.clear()
    made_site.build_frame(after, tmp_path / "afresh")
    assert len(made) == 10
    assert whole(tmp_path / "site") == whole(tmp_path / "afresh")
    made.clear()
    made_site.build_frame(after, tmp_path / "site")
    assert made == []
    assert whole(tmp_path / "site") == whole(tmp_path / "afresh")


@pytest.mark.slow
def test_a_part_that_was_damaged_is_made_again(tmp_path: Path, made: list[str]) -> None:
    frame = synthetic.history(2)
    site = made_site.build_frame(frame, tmp_path / "site")
    good = whole(site)
    (site / "data/h200x2-1a2b3c4d/0/kernel-gemm.js").write_text("changed by hand")
    (site / "data/h200x2-1a2b3c4d/kernel-softmax.csv").unlink()
    made.clear()
    assert whole(made_site.build_frame(frame, site)) == good
    assert made == ["all_gather", "gemm", "gemm_all_scatter", "rms_norm", "softmax"]


@pytest.mark.usefixtures("_own_pages")
@pytest.mark.parametrize("said", ["", "[]", '{"h200x2-1a2b3c4d/0": 1}', '{"h200x2-1a2b3c4d/0": {"made_of": 1}}'])
def test_an_odd_list_of_parts_only_costs_time(tmp_path: Path, said: str) -> None:
    frame = synthetic.history(1, synthetic.CASES[:1])
    site = made_site.build_frame(frame, tmp_path / "site")
    good = whole(site)
    (site / draft.PARTS).write_text(said)
    assert whole(made_site.build_frame(frame, site)) == good


def test_other_code_makes_everything_again(tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    frame = synthetic.history(1, synthetic.CASES[:1])
    made_site.build_frame(frame, tmp_path / "site")
    monkeypatch.setattr(build, "_code", lambda: "other")
    made.clear()
    made_site.build_frame(frame, tmp_path / "site")
    assert len(made) == 2


# ---- texts ----------------------------------------------------------------------------------------------------------

ODD = "a\ud800b\0c"


@pytest.mark.usefixtures("_own_pages")
def test_lone_surrogates_and_nul_in_any_text_do_not_stop_the_site(tmp_path: Path) -> None:
    frame = synthetic.history(2, synthetic.CASES[:2], machines=["h200x2-1a2b3c4d"])
    frame = synthetic.spoil(frame, frame["backend"] == "gluon", "wrong", "")
    for column in ("machine", "device", "market_name", "env", "kernel", "backend", "case", "tier", "dtype", "why"):
        frame[column] = pd.Series([f"{text}{ODD}" for text in frame[column]], dtype=object)
    site = made_site.build_frame(frame, tmp_path / "site", problems=[ODD])
    for name, content in whole(site).items():
        if name.startswith("static/"):
            continue
        assert b"\0" not in content, name
        assert b"\\u0000" not in content, name
        assert b"\\ud800" not in content, name
    assert len(list((site / "kernels").iterdir())) == 1


@pytest.mark.parametrize("odd", [ODD, "a\\\\u0000", "a\0"])
def test_json_for_a_script_is_json(odd: str) -> None:
    """With lone surrogates and without, which take different ways."""
    kept = ["é<&>\u2028\u2029", 1, 2.5, None, True, "😀", "\\u0000", "\\"]
    value = {"<&>": [*kept, odd], "line": np.array([1.5, np.nan, 1e-7]), "one": np.int64(3), "tuple": (1, "x")}
    text = script_json(value)
    texts = [*kept, odd.replace("\ud800", "\ufffd").replace("\0", "\ufffd")]
    assert json.loads(text) == {"<&>": texts, "line": [1.5, None, 1e-7], "one": 3, "tuple": [1, "x"]}
    assert not set("<>&\u2028\u2029") & set(text.decode())


# A site that stands is not built again, unless anything that it shows has changed.


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A repository with one record."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    line = trials.trial({"m16": {"head/triton": trials.ok()}}, trees={"head": trials.tree()})
    store.record([trials.write(tmp_path / "a.jsonl", line)], tmp_path / "results")
    return tmp_path / "results"


@pytest.fixture
def built(results: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Run the program; was the site built?"""
    found: list[bool] = []
    build = program._build
    monkeypatch.setattr(program, "_build", lambda wanted: found.append(True) or build(wanted))

    def run(*more: str) -> bool:
        found.clear()
        assert program.main(["--results", str(results), "--out", str(results.parent / "site"), *more]) == 0
        return bool(found)

    return run


def test_a_site_is_built_once(built: Callable[..., bool], capsys: pytest.CaptureFixture[str]) -> None:
    assert built()
    assert not built()
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", ["record", "decision", "commit", "address", "page", "missing", "note", "machine code"]
)
def test_what_a_site_shows_makes_it_new(built: Callable[..., bool], results: Path, change: str) -> None:
    assert built()
    around, address = results.parent, []
    if change == "record":
        line = trials.trial({"m64": {"head/triton": trials.ok()}}, trees={"head": trials.tree()}, number=1)
        store.record([trials.write(around / "b.jsonl", line)], results)
    elif change == "decision":
        (around / "ci").mkdir()
        (around / "ci/events.toml").write_text("")
    elif change == "machine code":
        (around / "results_isa").mkdir()
        (around / "results_isa/x.json").write_text("{}")
    elif change == "commit":
        author = ["-c", "user.name=A. Author", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", around, *author, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    elif change == "address":
        address = ["--repo-url", "https://example.org/a/b"]
    elif change == "page":
        (around / "site/index.html").write_text("changed by hand")
    elif change == "missing":
        (around / "site/data/site.js").unlink()
    else:
        for note in (results / ".cache").glob("site-*.note"):
            note.write_text("[]")
    assert built(*address)
    assert not built(*address)


def test_nothing_heavy_is_imported_to_find_out() -> None:
    heavy = "'pandas', 'numpy', 'scipy', 'jinja2'"
    code = f"import sys, dashboards.__main__; print([name for name in ({heavy}) if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=draft.HOUSE)
    assert shown.stdout.strip() == "[]"


def test_without_git_and_with_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("no folder")
    made_of = draft.inputs(tmp_path / "results")
    draft.remember(tmp_path / "site", tmp_path / "results", made_of)
    assert not draft.stands(tmp_path / "site", tmp_path / "results", made_of)


def test_a_worktree_has_its_refs_elsewhere(results: Path, tmp_path: Path) -> None:
    author = ["-c", "user.name=A. Author", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", tmp_path, *author, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run(["git", "-C", tmp_path, "worktree", "add", "-q", tmp_path / "tree"], check=True)
    before = draft.inputs(tmp_path / "tree" / "results")
    subprocess.run(["git", "-C", tmp_path / "tree", *author, "commit", "-q", "--allow-empty", "-m", "y"], check=True)
    assert draft.inputs(tmp_path / "tree" / "results") != before


# Views in general: how a page that is listed comes into the site.


def _newest(site: SiteInput) -> Iterator[tuple[str, Any]]:
    for lane in site.lanes:
        yield f"{lane.slug}/extra", {"rows": len(lane.frame)}
        yield "extra.csv", b"rows\n%d\n" % len(site.frame)


def test_a_listed_view_becomes_a_page_with_its_data_and_its_place_in_the_navigation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = View("extra", "Extra <page>", _newest, scripts=("table.js",))
    monkeypatch.setattr(build, "VIEWS", (view,))
    frame = synthetic.history(2, synthetic.CASES[:1], machines=["h200x2-1a2b3c4d"])
    files = made_site.site_files(frame)
    assert received(files, "h200x2-1a2b3c4d/extra") == {"rows": len(frame)}
    assert files["extra.csv"] == b"rows\n%d\n" % len(frame)
    page = files["extra.html"].decode()
    assert "<h1>Extra &lt;page&gt;</h1>" in page
    assert 'href="extra.html" aria-current="page"' in page
    assert 'href="../extra.html">' in files["kernels/gemm.html"].decode()
