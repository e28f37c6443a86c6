"""The built pages in headless Chromium, opened from disk as a colleague would."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from pathlib import Path

import pandas as pd
import pytest

from ci.records import derived
from tests.dashboards import chromium, made_site, synthetic

MI300X, H200 = "mi300x-8-0f3a9c1e", "h200x2-1a2b3c4d"
COMMITS = 60


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return synthetic.lively(COMMITS)


@pytest.fixture(scope="module")
def site(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = made_site.build_frame(
        frame, tmp_path_factory.mktemp("site") / "site", "https://github.com/example/kernels"
    )
    return folder.as_uri()


def amount(value: float) -> str:
    """Four significant digits, as the pages write them."""
    places = max(0, 3 - math.floor(math.log10(value)))
    return f"{value:,.{places}f}"


def newest(frame: pd.DataFrame, machine: str, case: str, backend: str) -> pd.Series:
    rows = frame[(frame["machine"] == machine) & (frame["case"] == case) & (frame["backend"] == backend)]
    return rows.sort_values("date").iloc[-1]


# ---- the overview ---------------------------------------------------------------------------------------------------


def test_the_overview_shows_the_newest_numbers_with_units(page: chromium.Page, site: str, frame: pd.DataFrame) -> None:
    page.size(1300, 4000)  # rows that are not laid out have no lines
    page.open(f"{site}/index.html#machine={MI300X}")
    row = page.texts("#kernels tbody tr:has(a[href*='llm_up_m4096'][href*='triton']) :is(th, td)")
    truth = newest(frame, MI300X, "llm_up_m4096", "triton")
    assert row[0].split() == ["llm_up_m4096", "fp16"]
    assert row[2] == f"{amount(truth['tflops'])} TFLOPS"
    assert row[3] == f"{100 * truth['peak_share']:.1f} %"
    assert row[4].split() == [f"{truth['baseline_ratio']:.3g}", "×", "blas"]
    assert row[7].split() == [truth["commit"][:8], truth["date"].strftime("%Y-%m-%d")]
    gather = page.texts("#kernels tbody tr:has(a[href*='w8_65536k'][href*='triton']) td")
    assert gather[1].split()[1:] == ["GB/s", "busbw"]
    norm = page.texts("#kernels tbody tr:has(a[href*='h8192_t4096'][href*='triton']) td")
    assert norm[1].split()[1:] == ["GB/s", "HBM"]


def test_a_point_of_the_first_pictures_leads_to_its_case_around_that_commit(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/index.html#machine={MI300X}")
    page.wait("document.querySelector('.pictures .chart')")
    page.run("document.querySelector('.pictures .chart').focus()")
    page.key("End")
    page.key("ArrowLeft")
    page.key("Enter")
    page.wait("location.pathname.includes('/kernels/') && document.querySelector('.detail .chart')")
    address = page.run("location.hash")
    assert {part.partition("=")[0] for part in address.lstrip("#").split("&")} >= {"machine", "case", "backend"}
    assert re.search("(from|last)=", address), address


def test_what_was_not_measured_is_listed_with_its_reason(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/index.html#machine={MI300X}")
    fold = page.texts("#absent > li:has(details summary)")[-1]
    assert re.fullmatch(r"\d+ series cannot be measured on this machine", fold)
    page.run("[...document.querySelectorAll('#absent > li > details')].at(-1).open = true")
    page.wait("document.querySelectorAll('#absent > li > details li').length")
    listed = page.run("document.getElementById('absent').textContent")
    for reason in ("rows longer than 65536 do not fit the LDS", "no answer for 120 s; rank 3 of 8", "allowed 0.002"):
        assert reason in listed
    assert "softmax / v128k_t512 / gluon" in listed
    cell = "#kernels tbody tr:has(a[href*='v128k_t512'][href*='gluon']) td.value"
    assert page.texts(cell) == [], "no case of it runs here: not a headline"
    page.open(f"{site}/index.html#machine={MI300X}&q=v128k_t512")
    assert page.texts(cell) == ["unsupported"]
    assert "rows longer than 65536" in page.run(f"document.querySelector({cell!r}).title")


def test_backends_of_other_machines_are_left_out_and_counted(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/kernels/softmax.html#machine={MI300X}")
    backends = "#cases tbody tr:not(.detail-row) td[data-label=backend]"
    shown = page.texts(backends)
    assert shown
    assert "gluon" not in shown
    counted = page.texts("#shown")[0]
    left = int(re.search(r"; (\d+) never measured on this machine", counted)[1])
    page.run(
        "(f => { f.value = 'unsupported'; f.dispatchEvent(new Event('input')); })(document.querySelector('#filter'))"
    )
    assert page.texts(backends) == ["gluon"] * left
    page.open(f"{site}/kernels/softmax.html#machine={MI300X}&case=v128k_t512&backend=gluon")
    assert page.texts("tr.opened td[data-label=backend]") == ["gluon"], "what the address names is shown"


def test_choosing_a_machine_changes_everything_and_the_address(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/index.html#machine={MI300X}")
    assert "CUs 304" in " ".join(page.texts("#fingerprint")).replace("\n", " ")
    page.run(
        f"(s => {{ s.value = '{H200}'; s.dispatchEvent(new Event('change')); }})(document.querySelector('select'))"
    )
    page.wait("document.querySelector('#fingerprint').innerText.includes('H200')")
    assert page.run("location.hash") == f"#machine={H200}"
    page.wait(f"document.querySelector('#kernels a').href.includes('{H200}')")


def test_filter_sort_and_tiles(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/index.html#machine={MI300X}")
    headlines = len(page.texts("#kernels tbody tr:not(.group)"))
    page.run("document.querySelector('#all').click()")
    assert len(page.texts("#kernels tbody tr:not(.group)")) == 29 > headlines
    page.key("/")
    assert page.run("document.activeElement.id") == "filter"
    page.run(
        "(f => { f.value = 'gemm gluon'; f.dispatchEvent(new Event('input')); })(document.querySelector('#filter'))"
    )
    assert set(page.texts("#kernels tr.group a")) == {"gemm", "gemm_all_scatter"}
    page.open(f"{site}/index.html{page.run('location.hash')}")
    assert set(page.texts("#kernels tr.group a")) == {"gemm", "gemm_all_scatter"}, "the address keeps the filter"
    page.open(f"{site}/index.html#machine={MI300X}")
    page.run("document.querySelector('.tile.unmeasured').click()")
    statuses = page.run("[...document.querySelectorAll('#kernels td.value .status')].map(e => e.textContent)")
    assert set(statuses) == {"hang", "wrong"}  # innerText is empty in rows that are not laid out yet
    page.open(f"{site}/kernels/all_gather.html#machine={MI300X}")
    page.run("[...document.querySelectorAll('#cases thead button')].find(b => b.innerText === 'time').click()")
    units = {"µs": 1, "ms": 1e3}
    times = [text.split() for text in page.texts("#cases td[data-label=time]")]
    times = [float(value.replace(",", "")) * units[unit] for value, unit in times]
    assert times == sorted(times, reverse=True)
    assert len(times) == 16
    assert page.run("document.querySelector('th[aria-sort]').getAttribute('aria-sort')") == "descending"


# ---- a kernel -------------------------------------------------------------------------------------------------------


def test_the_history_breaks_at_a_new_definition_and_where_nothing_was_measured(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/kernels/gemm.html#machine={MI300X}&case=llm_up_m4096")
    strokes = page.run(
        "[...document.querySelectorAll('.detail .stroke')].map(p => p.getAttribute('d').split('M').length - 1)"
    )
    assert strokes == [2, 2, 3]  # blas and gluon: the benchmark definition; triton: four crashes as well
    assert len(page.texts(".detail .fault")) == 4
    marks = page.run("[...document.querySelectorAll('.detail .mark text')].map(t => t.textContent)")
    assert marks == ["benchmark definition changed", "torch2.11.0 → torch2.13.0", "triton3.6.0 → triton3.8.0"]
    assert page.run("document.querySelectorAll('.detail .band')[1].getAttribute('d').split('Z').length - 1") == 2


def test_keys_move_the_cursor_and_the_box_says_all(page: chromium.Page, site: str, frame: pd.DataFrame) -> None:
    page.open(f"{site}/kernels/gemm.html#machine={MI300X}&case=llm_up_m4096")
    page.run("document.querySelector('thead button').focus()")
    page.key("Enter")
    assert page.run("document.activeElement.closest('thead') !== null"), "the focus stays where the reader is"
    page.run("document.querySelector('.detail .chart').focus()")
    page.key("ArrowLeft")
    box, truth = page.texts(".detail .tip")[0], newest(frame, MI300X, "llm_up_m4096", "triton")
    low, high = (truth["tflops"] * truth["seconds"] / truth[end] for end in ("seconds_high", "seconds_low"))
    shown = [f"{amount(truth['tflops'])} TFLOPS", f"{amount(low)} to {amount(high)} TFLOPS", "120 samples in 3 trials"]
    for part in (truth["commit"][:8], f"{truth['date']:%Y-%m-%d}", *shown, "of peak", "× baseline", "torch2.13.0"):
        assert part in box
    assert page.run("document.querySelector('.detail [aria-live]').textContent") == box
    for _ in range(COMMITS - 1 - COMMITS // 4):
        page.key("ArrowLeft")
    assert "crash\nworker ended by signal 11" in page.texts(".detail .tip")[0].replace(" worker", "\nworker")
    page.key("Escape")
    assert page.run("document.querySelector('.detail .tip').hidden")


def test_zoom_is_kept_in_the_address(page: chromium.Page, site: str, frame: pd.DataFrame) -> None:
    page.open(f"{site}/kernels/gemm.html#machine={MI300X}&case=llm_up_m4096")
    page.run("document.querySelector('.detail').scrollIntoView()")
    x, y, width = page.run(
        "(r => [r.x, r.y + r.height / 2, r.width])(document.querySelector('.detail .chart').getBoundingClientRect())"
    )
    page.mouse("mousePressed", x + 0.3 * width, y, "left")
    page.mouse("mouseMoved", x + 0.5 * width, y, "left")
    page.mouse("mouseReleased", x + 0.5 * width, y, "left")
    address = page.run("location.hash")
    begin, end = re.search(r"from=([0-9a-f]{8})&to=([0-9a-f]{8})", address).groups()  # type: ignore[union-attr]
    order = [commit[:8] for commit in frame.sort_values("date")["commit"].drop_duplicates()]
    assert 5 < order.index(end) - order.index(begin) < 20
    page.open(f"{site}/kernels/gemm.html{address}")
    page.run("document.querySelector('.detail .chart').focus()")
    page.key("Home")
    assert page.texts(".detail .tip")[0].startswith(begin)
    page.key("End")
    assert page.texts(".detail .tip")[0].startswith(end)
    page.key("Escape")
    assert "from=" not in page.run("location.hash")


def test_units_and_zero(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/kernels/gemm.html#machine={MI300X}&case=llm_up_m4096&zero=1")
    assert "962.1 GFLOP" in page.texts(".facts")[0]
    assert page.texts(".detail .choices[aria-label=unit] button") == ["TFLOPS", "HBM GB/s", "time", "ratio to baseline"]
    peak = "(document.querySelector('.detail .roof text') || {}).textContent"
    assert page.run(peak) == "peak 1,307"
    page.run("document.querySelectorAll('.detail .choices[aria-label=unit] button')[2].click()")
    assert page.run(peak) is None
    assert "unit=time" in page.run("location.hash")
    assert page.run("document.querySelector('.detail text.axis').textContent") == "time, µs (less is better)"


def test_csv_fields_are_data(page: chromium.Page, tmp_path: Path) -> None:
    frame = synthetic.history(4, synthetic.CASES[:1], machines=[MI300X])
    first = frame["commit"].iloc[0]
    formula = '=HYPERLINK("http://x", "a, b")'
    frame = synthetic.spoil(frame, (frame["commit"] == first) & (frame["backend"] == "triton"), "wrong", formula)
    page.open(f"{made_site.build_frame(frame, tmp_path / 'site').as_uri()}/kernels/gemm.html")
    page.run("URL.createObjectURL = blob => { window.saved = blob; return 'blob:none'; }")
    page.run("HTMLAnchorElement.prototype.click = () => {}")
    page.run("document.querySelector('.numbers summary').click()")
    page.wait("document.querySelector('.numbers .controls button')")
    page.run("[...document.querySelectorAll('.numbers button')].find(b => b.innerText === 'Save as CSV').click()")
    rows = list(csv.DictReader(io.StringIO(page.run("window.saved.text()"))))
    assert len(rows) == 3 * 4
    assert [row["why"] for row in rows if row["why"]] == ["'" + formula]
    truth = newest(frame, MI300X, "llm_down_m64", "triton")
    row = next(row for row in rows if row["backend"] == "triton")
    assert row["commit"] == truth["commit"]
    assert float(row["tflops"]) == pytest.approx(truth["tflops"], rel=1e-5)
    assert float(row["microseconds"]) == pytest.approx(truth["seconds"] * 1e6, rel=1e-5)


def test_a_kernels_page_leads_to_its_speed_over_the_message_size(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/kernels/all_gather.html#machine={MI300X}")
    page.run("document.querySelector('#over-shapes').click()")
    page.wait("document.querySelector('#view canvas')")
    said = page.run("document.querySelector('#view .plot').getAttribute('aria-label')")
    assert said.startswith("busbw over message bytes, all_gather"), said
    page.run("document.querySelector('#view .plot').focus()")
    page.key("Home")


def test_pages_that_have_nothing_to_show_say_so(
    page: chromium.Page, site: str, tmp_path: Path, frame: pd.DataFrame
) -> None:
    page.open(f"{site}/kernels/gemm.html#machine={MI300X}&case=m65")
    assert page.texts("#unknown-case") == ["There is no case “m65” of gemm on this machine; choose one below."]
    page.open(f"{site}/kernels/gemm.html#machine=nobody")
    page.wait("document.querySelector('tr.opened')")
    assert "There is no machine “nobody”" in page.texts("#unknown-machine")[0]
    partial = frame[~((frame["machine"] == H200) & (frame["kernel"] == "softmax"))]
    other = made_site.build_frame(partial, tmp_path / "site").as_uri()
    page.open(f"{other}/kernels/softmax.html#machine={H200}")
    assert "has no record on this machine" in page.run("document.querySelector('#absent-here').innerText")
    empty = made_site.build_frame(frame.iloc[:0], tmp_path / "empty").as_uri()
    page.open(f"{empty}/index.html")
    assert "There are no records yet" in page.texts("main")[0]


@pytest.mark.parametrize("machine", [MI300X, H200])
def test_a_kernels_page_opens_on_a_machine_that_has_the_kernel(
    page: chromium.Page, tmp_path: Path, frame: pd.DataFrame, machine: str
) -> None:
    without = frame[~((frame["machine"] == machine) & (frame["kernel"] == "softmax"))]
    page.open(f"{made_site.build_frame(without, tmp_path / 'site').as_uri()}/kernels/softmax.html")
    page.wait("document.querySelector('tr.opened')")
    assert (H200 if machine == MI300X else MI300X) in page.run("location.hash")


def test_one_commit_is_a_dot(page: chromium.Page, tmp_path: Path) -> None:
    one = made_site.build_frame(synthetic.history(1), tmp_path / "site").as_uri()
    page.open(f"{one}/kernels/gemm.html#machine={MI300X}&case=llm_up_m4096")
    assert len(page.texts(".detail .line circle")) == 3
    assert not page.run("document.body.innerHTML.includes('NaN')")


# ---- looks ----------------------------------------------------------------------------------------------------------


def test_dark_mode_follows_the_reader(page: chromium.Page, site: str) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        page.size(1400, 1000, scheme)
        page.open(f"{site}/index.html")
        grounds.append(page.run("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(255, 255, 255)", "rgb(20, 23, 27)"]


# The overview's table and odd names, in headless Chromium.


LINES = "#kernels tbody tr:not(.group)"
BUILT = "!document.querySelector('#kernels').dataset.building"


@pytest.fixture(scope="module")
def long_site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """600 own series of 15 kernels."""
    frame = derived.derive(synthetic.large(900, 3))
    return made_site.build_frame(frame, tmp_path_factory.mktemp("long") / "site").as_uri()


def test_a_long_table_begins_at_once_and_ends_whole(page: chromium.Page, long_site: str) -> None:
    page.open(f"{long_site}/index.html#all=1")
    page.wait(BUILT)
    assert page.texts("#shown") == ["600 of 600 series"]
    assert page.run(f"document.querySelectorAll({LINES!r}).length") == 600
    assert page.run("new Set([...document.querySelectorAll('tr.group a')].map(a => a.textContent)).size") == 15
    cases = page.run(f"[...document.querySelectorAll({LINES + ' th a'!r})].map(a => a.href)")
    assert len(set(cases)) == 600, "no row twice"
    assert page.run("document.querySelectorAll('#kernels .spark').length") < 100, "lines only near the window"
    page.run(f"[...document.querySelectorAll({LINES + ' a'!r})].at(-1).focus()")
    page.wait("document.activeElement.closest('tr').querySelector('.spark')")
    page.run(chromium.PRINTED)
    assert page.run("document.querySelectorAll('#kernels .spark').length") == 600


def test_printing_does_not_wait_for_the_rest_of_the_table(page: chromium.Page, long_site: str) -> None:
    page.open(f"{long_site}/index.html")
    page.run("(document.querySelector('#all').click(), window.dispatchEvent(new Event('beforeprint')))")
    assert page.run(f"[{BUILT}, document.querySelectorAll({LINES!r}).length]") == [True, 600]


def test_order_and_choice_are_in_the_address_and_back_undoes_them(page: chromium.Page, long_site: str) -> None:
    page.open(f"{long_site}/index.html#machine={MI300X}")
    few = page.run(f"document.querySelectorAll({LINES!r}).length")
    page.run("document.querySelector('#all').click()")
    page.wait(BUILT)
    newest = "[...document.querySelectorAll('#kernels thead button')].find(b => b.innerText.startsWith('newest'))"
    page.run(f"{newest}.click()")
    assert "sort=-newest" in page.run("location.hash")
    address = page.run("location.hash")
    page.run("history.back()")
    page.wait("!location.hash.includes('sort')")
    page.wait("!document.querySelector('#kernels th[aria-sort]')")
    page.run("history.back()")
    page.wait("!document.querySelector('#all').checked")
    page.wait(f"document.querySelectorAll({LINES!r}).length === {few}")
    page.open(f"{long_site}/index.html{address}")
    assert page.run("document.querySelector('#kernels th[aria-sort]').getAttribute('aria-sort')") == "descending"


def test_the_filter_of_an_address_is_one_of_ours(page: chromium.Page, long_site: str) -> None:
    page.open(f"{long_site}/index.html#only=constructor&sort=__proto__")
    assert page.texts("#shown") == ["90 of 600 series"], "the headlines"


def test_what_was_never_tried_here_is_a_count_until_it_is_asked_for(page: chromium.Page, tmp_path: Path) -> None:
    frame = synthetic.history(2, machines=[MI300X])
    never = (frame["kernel"] == "all_gather") & ~frame["case"].isin(["w8_64k", "w8_256k"])
    frame = synthetic.spoil(frame, never, "skipped", "needs 8 ranks")
    site = made_site.build_frame(frame, tmp_path / "site").as_uri()
    page.open(f"{site}/index.html#machine={MI300X}&all=1")
    assert page.texts("#shown") == ["18 of 30 series; 12 cannot be measured here"]
    assert "12 cannot be measured here, beside rccl" in " ".join(page.texts("tr.group"))
    assert page.texts("#kernels .status") == []
    page.open(f"{site}/index.html#machine={MI300X}&q=skipped")
    assert page.texts("#kernels .status") == ["skipped"] * 12
    assert page.texts("#newest")[0].startswith("All numbers are of the newest commit")


def test_numbers_for_other_programs_are_linked(page: chromium.Page, long_site: str) -> None:
    for address, path in (("index.html", "overview"), ("kernels/gemm_0.html", "kernel-gemm_0")):
        page.open(f"{long_site}/{address}")
        links = page.run("[...document.querySelectorAll('#downloads a')].map(a => a.href)")
        assert links == [
            *(f"{long_site}/data/{MI300X}/{path}.{kind}" for kind in ("json", "csv")),
            f"{long_site}/data/README.txt",
        ]
        assert all(Path(link.removeprefix("file://")).exists() for link in links)


# ---- odd names ------------------------------------------------------------------------------------------------------


def named(*names: str) -> pd.DataFrame:
    """One kernel for each name, whose case and backend have it too."""
    made = [
        synthetic.history(2, [synthetic.gemm(name, 64, 64, 64, kernel=name)], machines=[MI300X], backends=(name,))
        for name in names
    ]
    return pd.concat(made, ignore_index=True)


def test_names_that_every_object_has(page: chromium.Page, tmp_path: Path) -> None:
    names = ("constructor", "toString", "__proto__", "gemm")
    two = pd.concat([named(*names), synthetic.history(2, synthetic.CASES[:1], machines=["h200x2-1a2b3c4d"])])
    site = made_site.build_frame(two, tmp_path / "site").as_uri()
    for name in names[:3]:
        page.open(f"{site}/index.html#machine={MI300X}")
        address = page.run(f"[...document.querySelectorAll('tr.group a')].find(a => a.textContent === {name!r}).href")
        page.open(address)
        assert page.texts("h1") == [name]
        assert page.texts("tr.opened .opener") == [name]
        assert page.run("document.querySelectorAll('.detail .stroke').length") == 2
    page.open(address.split("#")[0] + "#machine=h200x2-1a2b3c4d")
    assert page.run("[document.querySelector('#absent-here').hidden, document.querySelector('#here').hidden]") == [
        False, True]  # fmt: skip


def test_a_name_of_600_letters_is_no_wider_than_the_window(page: chromium.Page, tmp_path: Path) -> None:
    frame = named("k" * 600)
    for column in ("device", "market_name", "env", "tier", "dtype"):
        frame[column] = frame[column].astype(str) + "x" * 600
    frame["machine"] = MI300X + "m" * 100
    site = made_site.build_frame(frame, tmp_path / "site")
    pages = (site / "index.html", next((site / "kernels").iterdir()))
    for width, path in itertools.product((360, 1400), pages):
        page.size(width, 800)
        page.open(path.as_uri())
        page.wait(BUILT.replace("kernels'", "kernels, #cases'"))
        assert page.run("document.documentElement.scrollWidth") <= width, path.name
        rows = "[...document.querySelectorAll('#kernels tr, #cases tr:not(.detail-row)')]"
        assert page.run(f"Math.max(...{rows}.map(row => row.offsetHeight))") < 2500, "not a letter a line"


OVERRIDE = "\u202e"


def test_right_to_left_overrides_stay_within_their_own_text(page: chromium.Page, tmp_path: Path) -> None:
    frame = named(f"gemm{OVERRIDE}abc")
    frame = synthetic.spoil(frame, frame["backend"] == "blas", "wrong", f"why{OVERRIDE}abc")
    for column in ("device", "env", "tier", "dtype", "machine"):
        frame[column] = frame[column].astype(str) + OVERRIDE
    site = made_site.build_frame(frame, tmp_path / "site", problems=[f"left{OVERRIDE}abc"])
    for path in (site / "index.html", next((site / "kernels").iterdir())):
        page.open(path.as_uri() + "#all=1")
        assert page.run(LOOSE.replace("OVERRIDE", OVERRIDE)) == [], path.name


LOOSE = """(() => {
  const loose = [], isolated = element => getComputedStyle(element).unicodeBidi.includes('isolate');
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    let element = node.parentElement;
    if (!node.data.includes('OVERRIDE') || element.closest('svg, option, script')) continue;
    while (element.textContent === node.data && !isolated(element)) element = element.parentElement;
    if (element.textContent !== node.data) loose.push(element.outerHTML.slice(0, 200));
  }
  return loose;
})()"""
"""Elements in which a text with an override stands beside other text, and is not isolated from it."""
