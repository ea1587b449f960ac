"""`python -m tests.browser`: the page of a report in headless Chromium, and its picture.

What is checked: it renders, without an error in the console; sorting, filtering, opening, enlarging
the time line; nothing is fetched; no text of the user's program runs; it fits wide and narrow
windows, in light and dark. docs/report.png is taken of a training run, with --screenshot.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.report import runs
from xla_dynamo.reporting import page

from .chromium import Browser, find

ROOT = Path(__file__).parents[2]
_ORDER = "[...document.querySelectorAll('#programs tbody')].map(b => b.id).join(' ')"
_SHOWN = _ORDER.replace(".map(", ".filter(b => !b.hidden).map(")


def renders(browser: Browser) -> None:
    """All parts are there, and have a size."""
    assert browser.js("document.title") == "train.py · xla_dynamo"
    for part in ("h1", ".tiles", "#line", "#line rect.compile", "#line rect.run", "#programs"):
        box = f"document.querySelector('{part}').getBoundingClientRect()"
        assert browser.js(f"{box}.width * {box}.height") > 0, part
    assert browser.js("document.querySelectorAll('polyline').length") == 2


def sorts(browser: Browser) -> None:
    """By numbers, by text, and back; a second click turns the order around."""
    press = "document.querySelector('th button[data-key={}]').click()".format
    for key, orders in {
        "total": ("p0 p1 p2", "p2 p1 p0", "p0 p1 p2"),
        "compile": ("p2 p1 p0", "p0 p1 p2", "p0 p1 p2"),
        "line": ("p0 p1 p2", "p2 p1 p0", "p0 p1 p2"),
    }.items():
        for order in orders:
            browser.js(press(key))
            assert browser.js(_ORDER) == order, key


def filters(browser: Browser) -> None:
    """By words that are typed, and by cause."""
    browser.js("document.getElementById('filter').focus()")
    browser.type("float32[9, 4]")
    assert browser.js(_SHOWN) == "p1"
    assert browser.js("document.getElementById('shown').textContent") == "1 program"
    reset = (
        "f = document.getElementById('filter'), f.value = '', f.dispatchEvent(new Event('input'))"
    )
    browser.js(reset)
    pick = (
        "c = document.getElementById('cause'), c.value = '{}', c.dispatchEvent(new Event('input'))"
    )
    browser.js(pick.format("sizes"))
    assert browser.js(_SHOWN) == "p1 p2"
    browser.js(pick.format(""))
    assert browser.js(_SHOWN) == "p0 p1 p2"


def opens(browser: Browser) -> None:
    """A row has its details and its graph; a bar of the time line leads to its row."""
    height = "document.querySelector('#p1 .details').getBoundingClientRect().height"
    assert browser.js(height) == 0
    browser.js("document.querySelector('#p1 .row').click()")
    assert browser.js(height) > 50
    browser.js("document.querySelector('#p1 details').open = true")
    assert browser.js("document.querySelectorAll('#p1 .graph g.op').length") == 2
    assert (
        browser.js("document.querySelector('#p1 .graph svg').getBoundingClientRect().height") > 90
    )
    browser.js("scrollTo(0, 0)")
    x, y = _centre(browser, '#line rect.compile[data-program="2"]')
    browser.click(x, y)
    assert browser.js("document.querySelector('#p2').classList.contains('open')")


def enlarges(browser: Browser) -> None:
    """A part of the time line that is dragged over fills it; a button shows all again."""
    browser.js("scrollTo(0, 0)")
    width = "document.querySelector('#line rect.compile').getBoundingClientRect().width"
    box = "document.getElementById('line').getBoundingClientRect()"
    left, whole, y = (
        browser.js(f"{box}.left"),
        browser.js(f"{box}.width"),
        browser.js(f"{box}.top + 150"),
    )
    before = browser.js(width)
    browser.mouse("mouseMoved", left, y)
    browser.mouse("mousePressed", left, y)
    browser.mouse("mouseMoved", left + whole / 10, y)
    browser.mouse("mouseMoved", left + whole / 5, y)
    browser.mouse("mouseReleased", left + whole / 5, y)
    assert 4.5 < browser.js(width) / before < 5.5
    assert browser.js("document.querySelectorAll('#axis text').length") > 3
    browser.js("document.getElementById('reset').click()")
    assert abs(browser.js(width) - before) < 1


def explains(browser: Browser) -> None:
    """What is under the pointer is said."""
    browser.js("scrollTo(0, 0)")
    browser.mouse("mouseMoved", *_centre(browser, '#line rect.compile[data-program="1"]'))
    assert "x dimension 0 changed" in browser.js("document.getElementById('tip').textContent")


def fits(browser: Browser) -> None:
    """Nothing is wider than the window, in any; dark is dark."""
    for width in (360, 800, 1600):
        for dark in (False, True):
            browser.look(width, 900, dark=dark)
            assert browser.js("document.documentElement.scrollWidth") <= width, width
            back = browser.js("getComputedStyle(document.body).backgroundColor")
            levels = [int(level) for level in back.removeprefix("rgb(").rstrip(")").split(",")]
            assert (sum(levels) < 200) == dark, back


def stays_text(browser: Browser) -> None:
    """What a user's program is called runs nothing, also when it is opened, or said."""
    title = browser.js("document.title")
    assert title.startswith("<script>")
    browser.js("document.querySelectorAll('.row').forEach(row => row.click())")
    browser.js("document.querySelectorAll('details').forEach(each => { each.open = true })")
    browser.mouse("mouseMoved", *_centre(browser, "#line rect.compile"))
    assert "<" in browser.js("document.getElementById('tip').textContent")
    assert browser.js("document.title") == title
    assert browser.js("document.querySelectorAll('td img, td script, #tip *').length") == 0
    browser.js("document.querySelector('td').innerHTML = '<details open ontoggle=\"hacked = 1\">'")
    assert browser.js("typeof hacked") == "undefined"  # the page's policy, had we not escaped


def _centre(browser: Browser, selector: str) -> tuple[float, float]:
    box = f"document.querySelector('{selector}').getBoundingClientRect()"
    return (
        browser.js(f"{box}.left + {box}.width / 2"),
        browser.js(f"{box}.top + {box}.height / 2"),
    )


_ERRORS = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
USUAL: tuple[Callable[[Browser], None], ...] = (
    *(renders, sorts, filters, opens, enlarges, explains, fits),
)


def check(executable: str, folder: Path) -> None:
    """Run the checks, each on a page that was loaded anew."""
    for name, run, checks in (
        ("run.html", runs.run(), USUAL),
        ("hostile.html", runs.hostile(), (stays_text, fits)),
        ("empty.html", runs.run(programs=(), spans=(), uses=(), steps=0), (fits,)),
    ):
        page.write(run, folder / name)
        for each in checks:
            with Browser(executable) as browser:
                browser.look(1280, 900)
                browser.open(folder / name)
                told = [event for event in browser.events if event["method"] in _ERRORS]
                assert told == [], told
                each(browser)
                fetched = {
                    event["params"]["request"]["url"]
                    for event in browser.events
                    if event["method"] == "Network.requestWillBeSent"
                }
                assert fetched <= {(folder / name).as_uri()}, fetched
                told = [event for event in browser.events if event["method"] in _ERRORS]
                assert told == [] or each is stays_text, told
            print(f"{name:<13} {each.__name__}", flush=True)


def screenshot(executable: str, folder: Path, to: Path) -> None:
    """A picture of the page of a training run."""
    given = ("-m", "xla_dynamo", "run", "--report", str(folder / "train.html"))
    script = Path(__file__).with_name("train.py")
    subprocess.run([sys.executable, *given, str(script)], check=True, cwd=script.parent)
    with Browser(executable) as browser:
        browser.look(1180, 860)
        browser.open(folder / "train.html")
        browser.screenshot(to)
    print(f"{to}: {to.stat().st_size / 1000:.0f} kB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--screenshot", action="store_true", help="write docs/report.png")
    options = parser.parse_args()
    executable = find()
    if executable is None:
        print("There is no browser: apt-get install chromium, or set CHROMIUM.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        check(executable, Path(name))
        if options.screenshot:
            screenshot(executable, Path(name), ROOT / "docs" / "report.png")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
