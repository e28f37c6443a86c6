"""The pages of machines, scaling and checks in Chromium: what they show, their addresses, a phone, odd names."""

from __future__ import annotations

import pytest

from ci.history import kept
from ci.history.kept import CanaryCase, CanaryRun
from tests.ci import made_trials
from tests.dashboards import chromium, made_site, synthetic
from tests.dashboards.test_build import HOSTILE
from tests.dashboards.test_machine_views import check, folder

H200 = "h200x2-1a2b3c4d"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    wrong = {"status": "wrong", "why": HOSTILE}
    gather = {**check(triton=wrong), "kernel": "all_gather", "world": 2}
    results = folder(tmp_path_factory.mktemp("records"), check(triton=wrong), gather)
    home = results / H200
    home.mkdir()
    reading = {"sm_clock_mhz": 1980, "power_w": 700, "temperature_c": 60, "throttle": "none"}
    state = {"state": {"during": [{**reading, "others": [{**reading, "sm_clock_mhz": 1500}]}] * 3}}
    made_trials.write(
        home / "aaaaaaaa-env.notes.jsonl", *({**made_trials.trial(number=number), **state} for number in range(4))
    )
    case = CanaryCase(HOSTILE, "SAME", 1.001, 0.999, 1.003, 4)
    kept.add(results, [CanaryRun("1", "2026-11-22T02:00:00+00:00", H200, "2 × H200", "a" * 40, 0.01, 0.003, (case,))])
    cases = [synthetic.gather(1 << 24, world=world) for world in (2, 8)]
    frame = synthetic.history(2, cases, machines=[H200])
    built = made_site.build_frame(frame, results.parent / "site", results_dir=results)
    return built.as_uri()


def opened(page: chromium.Page, address: str) -> str:
    """Open a page; the text of its view."""
    page.open(address)
    page.wait("document.querySelector('#view').children.length && !document.querySelector('[data-busy]')")
    text: str = page.run("document.querySelector('#view').innerText")
    return text


def test_the_pages_show_the_records_and_keep_their_state_in_the_address(page: chromium.Page, site: str) -> None:
    text = opened(page, f"{site}/machines.html")
    assert "GPU 1: clock at work 1,500 MHz, its peers have 1,980 MHz" in text
    assert "1 missed" in text
    assert HOSTILE in text
    page.run("[...document.querySelectorAll('main select')].at(-1).value = 'power'")
    page.run("[...document.querySelectorAll('main select')].at(-1).dispatchEvent(new Event('change'))")
    page.wait("document.querySelector('.plot').getAttribute('aria-label').startsWith('power at work')")
    assert "measure=power" in page.run("location.hash")
    page.run("history.back()")
    page.wait("document.querySelector('.plot').getAttribute('aria-label').startsWith('clock at work')")
    text = opened(page, f"{site}/scaling.html#value=us")
    assert "Speed over ranks" in text
    label = page.run("document.querySelector('.plot').getAttribute('aria-label')")
    assert "µs over 2, 8 ranks" in label
    text = opened(page, f"{site}/checks.html")
    assert f"gemm/triton/m16 on {H200}: wrong, {HOSTILE}" in text.replace("\u2068", "").replace("\u2069", "")
    assert page.run("window.pwned") is None


def test_a_kernels_page_says_when_it_was_last_verified(page: chromium.Page, site: str) -> None:
    page.open(f"{site}/kernels/all_gather.html")
    page.wait("document.getElementById('verified')")
    text = page.run("document.getElementById('verified').innerText")
    assert text.startswith("last verified 2026-11-21 at cccccccc: 6 results right on 2, 8 ranks; "), "trials count too"
    assert "triton: 1 wrong" in text
    page.run("document.querySelector('#verified a').click()")
    page.wait("location.pathname.endsWith('checks.html') && document.querySelector('#shown')?.textContent")
    assert page.run("document.querySelector('#shown').textContent") == "6 of 7 rows"


@pytest.mark.parametrize("name", ["machines", "scaling", "checks"])
def test_a_phone_needs_no_sideways_scrolling(page: chromium.Page, site: str, name: str) -> None:
    page.size(390, 800, "dark")
    opened(page, f"{site}/{name}.html")
    assert page.run("document.documentElement.scrollWidth") <= 390


def test_a_chart_is_read_with_the_keyboard(page: chromium.Page, site: str) -> None:
    opened(page, f"{site}/machines.html")
    page.run("document.querySelector('.plot').focus()")
    page.key("ArrowRight")
    said = "document.querySelector('.scroll:has(.plot) + p').innerText"
    page.wait(f"{said}.includes('GPU 0')")
    assert "1,980 MHz" in page.run(said)
