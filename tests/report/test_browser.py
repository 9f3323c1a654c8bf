"""The pages in a real browser: quiet, sortable, and whole without their script."""

import json
import shutil

import pytest

import browser
from pfljax.report import html, write_comparison, write_run_report
from pfljax.report.tables import Table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        browser.find() is None,
        reason=f"no {', '.join(browser.NAMES)} in PATH, and CHROMIUM names none",
    ),
]
PAGES = ("run/report.html", "compared/comparison.html")
SAID = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
HARD = [  # cells as they are sorted: numbers, texts with numbers; empty ones last
    ("-2.5 ± 9.0", "mu=0.002 mixing=layer"),
    ("-2", "mu=0.01 mixing=layer"),
    ("1e-3", "mu=0.01 mixing=model"),
    ("9.99 ± 0.10", "mu=0.1 mixing=layer"),
    ("12.3 ± 0.4", "mu=2 mixing=layer"),
    ("100 %", "mu=10 mixing=layer"),
    ("–", "–"),
    ("", ""),
]


@pytest.fixture(scope="module")
def pages(run_folder, comparison_folders, tmp_path_factory):
    """A folder with the pages; a run of local has no client worse off than itself."""
    root = tmp_path_factory.mktemp("pages")
    write_run_report(shutil.copytree(run_folder, root / "run"))
    write_comparison(comparison_folders, root / "compared")
    return root


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser.tab(tmp_path_factory.mktemp("profile")) as found:
        yield found


def column(tab, at):
    """The cells of a column, from 1, of the first table that sorts, top down."""
    rows = "document.querySelector('table.sortable').tBodies[0].rows"
    return tab.run(f"[...{rows}].map((row) => row.cells[{at - 1}].textContent)")


def press(tab, at):
    """Clicks on the heading of that column; what each heading says of the order."""
    tab.click(f"table.sortable th:nth-child({at}) button")
    return orders(tab)


def orders(tab):
    heads = "document.querySelector('table.sortable').tHead.rows[0].cells"
    return tab.run(f"[...{heads}].map((head) => head.getAttribute('aria-sort'))")


def requests(tab):
    """The addresses that the page asked for, itself among them."""
    asked = [e["request"]["url"] for e in tab.of("Network.requestWillBeSent")]
    return [url for url in asked if not url.startswith("data:")]


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_quiet_and_asks_for_nothing(pages, tab, page, scripts):
    tab.open(pages / page, scripts=scripts)
    assert tab.of(*SAID) == []
    assert requests(tab) == [(pages / page).resolve().as_uri()]


def test_noise_and_requests_would_be_seen(tab, tmp_path):
    noisy = tmp_path / "noisy.html"
    noisy.write_text("<img src='http://127.0.0.1:9/a.png'><script>oops()</script>")
    tab.open(noisy)
    assert "oops" in str(tab.of("Runtime.exceptionThrown"))
    assert requests(tab)[1:] == ["http://127.0.0.1:9/a.png"]


def test_the_policy_lets_nothing_else_run(pages, tab, tmp_path):
    """Should a text ever escape its quoting, the browser refuses to run it."""
    html = (pages / "run/report.html").read_text(encoding="utf-8")
    script = "<script>document.title = 'taken'</script></main>"
    (tmp_path / "script.html").write_text(html.replace("</main>", script))
    tab.open(tmp_path / "script.html")
    assert tab.run("document.title") == "SuPerFed-MM"
    assert "Content Security Policy" in str(tab.of("Log.entryAdded"))


def test_a_click_sorts_the_rows_and_a_second_reverses_them(pages, tab):
    tab.open(pages / "compared/comparison.html")
    at = 3  # the accuracy
    assert set(orders(tab)) == {None}
    assert press(tab, at)[at - 1] == "ascending"
    rising = [float(cell) for cell in column(tab, at)]
    assert rising == sorted(rising)
    assert press(tab, at)[at - 1] == "descending"
    assert [float(cell) for cell in column(tab, at)] == rising[::-1]
    assert press(tab, 1)[:1] == ["ascending"]
    assert column(tab, 1) == sorted(column(tab, 1), key=str.casefold)


def test_hard_cells_are_in_order_and_empty_ones_last(tab, tmp_path):
    mixed = [HARD[i] for i in (7, 4, 1, 6, 5, 0, 3, 2)]
    table = Table("Hard", ["number", "text"], mixed)
    page = html.render("Hard", (), (), [table], {})
    (tmp_path / "hard.html").write_text(page, encoding="utf-8")
    tab.open(tmp_path / "hard.html")
    for at, cells in enumerate(zip(*HARD, strict=True), start=1):
        press(tab, at)
        assert column(tab, at)[:6] == list(cells)[:6]
        assert set(column(tab, at)[6:]) == {"", "–"}
        press(tab, at)
        assert column(tab, at)[:6] == list(cells)[5::-1]


@pytest.mark.parametrize("page", PAGES)
def test_all_is_there_without_scripts(pages, tab, page):
    content = "document.querySelector('main').textContent"
    tab.open(pages / page)
    whole = tab.run(content).replace(" ", "")
    tab.open(pages / page, scripts=False)
    assert tab.run("document.querySelectorAll('th button').length") == 0
    assert tab.run(content).replace(" ", "") == whole
    images = "[...document.images].map((i) => i.complete && i.naturalWidth > 0)"
    assert set(tab.run(images)) == {True}
    shown = "document.querySelector('details').innerText"
    before = tab.run(shown)
    tab.click("details summary")  # what is folded opens without a script
    assert len(tab.run(shown)) > len(before)


def luminance(colour):
    """Of "rgb(r, g, b)", as the WCAG define it."""
    parts = [int(part) / 255 for part in colour[4:-1].split(",")]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return sum(f * p for f, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("dark", [False, True])
def test_texts_have_contrast_in_light_and_dark(pages, tab, dark):
    tab.open(pages / "run/report.html", dark=dark)
    of = "getComputedStyle(document.querySelector({})).{}"
    back = luminance(tab.run(of.format("'section'", "backgroundColor")))
    assert (back < 0.05) if dark else (back > 0.9)
    for selector in ("td", "th", "dt", "dd.note", "figcaption", "summary"):
        ink = luminance(tab.run(of.format(json.dumps(selector), "color")))
        high, low = max(ink, back), min(ink, back)
        assert (high + 0.05) / (low + 0.05) > 4.5, selector  # WCAG AA


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", [360, 390, 1400])
def test_a_page_is_no_wider_than_its_window(pages, tab, page, width):
    tab.open(pages / page, width=width)
    tab.run("document.querySelectorAll('details').forEach((d) => { d.open = true })")
    assert tab.run("document.documentElement.scrollWidth") == width


def test_a_phone_shows_all_numbers_of_the_answer(pages, tab):
    tab.open(pages / "compared/comparison.html", width=390)
    cells = "[...document.querySelectorAll('section td')]"
    rights = tab.run(f"{cells}.map((cell) => cell.getBoundingClientRect().right)")
    assert 0 < max(rights) < 390
    shown = tab.run(f"getComputedStyle({cells}[2], '::before').content")
    assert "Test acc." in shown  # the number has its name, for headings are hidden


def test_the_first_screen_has_both_figures(pages, tab):
    tab.open(pages / "compared/comparison.html")
    bottoms = "[...document.querySelectorAll('section figure')].map((figure) => "
    bottoms += "figure.getBoundingClientRect().bottom)"
    assert max(tab.run(bottoms)) < 900
