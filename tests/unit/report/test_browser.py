"""The page in a real browser: it fits narrow and wide windows, and can be read in light and dark."""

from __future__ import annotations

import html as markup
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servewright.report.html import html
from tests.testbed.errors import TestbedError
from tests.testbed.machine import cache_folder, install_packages
from tests.unit.report.test_html import RUNS, WHEN

# The colour schemes as Chromium numbers them (blink's PreferredColorScheme).
SCHEMES = {"dark": 0, "light": 1}
WIDTHS = (375, 1400)  # pixels of CSS: a telephone and a desk
# Asked of the page in a frame of one width: what does not fit, the colours in use, and text that is hard to read
# (below the 4.5 of WCAG 2).
SCRIPT = """
const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const numbers = (text) => (text.match(/[0-9.]+/g) || []).map(Number);
const luminance = (rgb) => rgb.slice(0, 3).map(channel).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
function behind(element, view) {
  for (; element; element = element.parentElement) {
    const colour = numbers(view.getComputedStyle(element).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
}
function look(frame) {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement, hard = [];
  const words = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (words.nextNode()) {
    const element = words.currentNode.parentElement, style = view.getComputedStyle(element);
    if (!words.currentNode.data.trim() || !element.getClientRects().length) continue;
    seen += 1;
    const ink = numbers(element.closest("svg") ? style.fill : style.color);
    const ratio = contrast(luminance(ink), luminance(behind(element, view)));
    if (ratio < 4.5) hard.push(`${ratio.toFixed(2)}: ${words.currentNode.data.trim().slice(0, 40)}`);
  }
  return {seen, hard, over: root.scrollWidth - root.clientWidth, ground: behind(page.body, view)};
}
onload = () => {
  const found = Object.fromEntries([...document.querySelectorAll("iframe")].map((f) => [f.id, look(f)]));
  document.body.textContent = JSON.stringify(found);
};
"""


@pytest.fixture(scope="module")
def browser() -> str:
    """Path of Chromium, which is installed where the distribution has it as a package of its own."""
    try:
        install_packages(cache_folder(), {"chromium": "chromium"})
    except TestbedError as error:
        pytest.skip(f"no Chromium here: {error}")
    return shutil.which("chromium") or ""


@pytest.fixture(scope="module", params=["everything", "plan", "odd"])
def looks(request: pytest.FixtureRequest, browser: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the script gives for one page, by colour scheme and width."""
    page = markup.escape(html(RUNS[request.param], 4, WHEN))
    frames = "".join(f'<iframe id="{width}" width="{width}" height="900" srcdoc="{page}"></iframe>' for width in WIDTHS)
    harness = tmp_path_factory.mktemp("page") / "harness.html"
    harness.write_text(f"<!doctype html><meta charset=utf-8><script>{SCRIPT}</script>{frames}", encoding="utf-8")
    return {scheme: ask(browser, harness, number) for scheme, number in SCHEMES.items()}


def ask(browser: str, harness: Path, scheme: int) -> Any:
    flags = [
        "--headless",
        "--no-sandbox",  # the tests run as root
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={harness.parent / 'profile'}",
        f"--blink-settings=preferredColorScheme={scheme}",
        "--dump-dom",
    ]
    done = subprocess.run([browser, *flags, harness.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    body = done.stdout.partition("<body>")[2].partition("</body>")[0]
    return json.loads(markup.unescape(body))


def each(looks: dict[str, Any], take: Callable[[Any], Any]) -> dict[str, Any]:
    return {f"{scheme} {width}": take(looks[scheme][str(width)]) for scheme in SCHEMES for width in WIDTHS}


def test_it_fits_a_narrow_and_a_wide_window(looks: dict[str, Any]) -> None:
    assert all(each(looks, lambda look: look["seen"] > 5).values())
    assert not any(each(looks, lambda look: look["over"]).values()), each(looks, lambda look: look["over"])


def test_every_word_can_be_read_in_light_and_dark(looks: dict[str, Any]) -> None:
    assert not any(each(looks, lambda look: look["hard"]).values()), each(looks, lambda look: look["hard"])
    light, dark = (sum(looks[scheme][str(WIDTHS[0])]["ground"][:3]) for scheme in ("light", "dark"))
    assert light > 600 > 200 > dark
