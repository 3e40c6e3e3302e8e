"""The built site as a reader has it: in a browser, without a network.

`make docs-check` builds the site, says where it is in DOCS_SITE, and runs these tests.
"""

import functools
import http.server
import os
import pathlib
import shutil
import threading

import pytest

SITE = os.environ.get("DOCS_SITE")
NEEDED = ("chromium", "chromedriver")
pytestmark = pytest.mark.skipif(
    not SITE, reason="DOCS_SITE does not name a built site; `make docs-check` does"
)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):  # noqa: A002
        """Say nothing."""


@pytest.fixture(scope="module")
def site():
    """The address of the site, served to this machine alone."""
    handler = functools.partial(Quiet, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser():
    """A browser without a window, for which nothing but this machine exists."""
    from selenium import webdriver

    programs = {name: shutil.which(name) for name in NEEDED}
    assert all(programs.values()), f"Not installed: {programs}. See `make docs-check`."
    options = webdriver.ChromeOptions()
    options.binary_location = programs["chromium"]
    # Chromium's own sandbox does not work for root.
    disabled = "dev-shm-usage gpu background-networking component-update sync"
    for argument in (
        *("headless", "no-sandbox", "no-first-run", "window-size=1300,1600"),
        *(f"disable-{each}" for each in disabled.split()),
        "host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=programs["chromedriver"])
    driver = webdriver.Chrome(options=options, service=service)
    driver.implicitly_wait(20)
    yield driver
    driver.quit()


def pages(folder="."):
    """The addresses of the pages in a folder and below, those of code left out."""
    root = pathlib.Path(SITE or ".")
    found = (path.relative_to(root) for path in (root / folder).rglob("*.html"))
    return sorted(str(path) for path in found if path.parts[0] != "_modules")


def click(browser, selector, text):
    """Click on the first link of a part of the page that says that."""
    part = browser.find_element("css selector", selector)
    link = part.find_element("link text", text)
    # A click at a place of the screen is lost while the page still moves.
    browser.execute_script("arguments[0].click()", link)


def broken_images(browser):
    """The addresses of pictures that do not show."""
    return browser.execute_script(
        "return [...document.images].filter(i => !i.naturalWidth).map(i => i.src)"
    )


def searched(browser, site, query):
    """The addresses that a search finds."""
    from selenium.webdriver.support.wait import WebDriverWait

    browser.get(f"{site}/search.html?q={query}")
    summary = browser.find_element("css selector", ".search-summary")
    WebDriverWait(browser, 20).until(lambda _: summary.text)  # The search has ended.
    links = browser.find_elements("css selector", "#search-results li a")
    return [link.get_attribute("href").removeprefix(f"{site}/") for link in links]


def figures():
    """The addresses of the pages of figures and tables."""
    return [page for page in pages("reproduction") if not page.endswith("index.html")]


@pytest.mark.parametrize("page", figures())
def test_a_reader_of_a_paper_finds_its_figure_in_two_clicks(browser, site, page):
    browser.get(f"{site}/index.html")
    click(browser, ".sidebar-tree", "Reproduction")
    name = page.rsplit("/", maxsplit=1)[-1]
    link = browser.find_element("css selector", f"article td a[href='{name}']")
    place = link.text
    browser.execute_script("arguments[0].click()", link)
    assert browser.current_url == f"{site}/{page}"
    title = browser.find_element("css selector", "h1").text
    assert f", {place}:" in title
    assert "Figure" not in title or browser.find_elements("css selector", "article img")


def test_equations_are_typeset(browser, site):
    for page in ("concepts", "api/gates", "fidelity", "sparse_gates"):
        browser.get(f"{site}/{page}.html")
        browser.execute_async_script(
            "const done = arguments[0]; MathJax.startup.promise.then(() => done())"
        )
        typeset = browser.execute_script(
            "return [...document.querySelectorAll('.math')]"
            ".map(e => e.querySelector('mjx-container') !== null)"
        )
        assert typeset == [True] * len(typeset) != []
        assert not browser.execute_script(
            "return document.querySelectorAll('mjx-merror').length"
        )


def test_the_chinese_page_says_what_it_is(browser, site):
    browser.get(f"{site}/quickstart.html")
    assert browser.find_element("css selector", "html").get_attribute("lang") == "en"
    click(browser, "article", "中文")
    assert browser.find_element("css selector", "html").get_attribute("lang") == "zh-CN"


def test_no_page_has_a_broken_picture_or_complains(browser, site):
    browser.get_log("browser")
    trouble = {}
    for page in pages():
        browser.get(f"{site}/{page}")
        said = [entry["message"] for entry in browser.get_log("browser")]
        if found := said + broken_images(browser):
            trouble[page] = found
    assert not trouble


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("load balancing", "choosing.html"),
        ("multi-GPU", "scaling.html"),
        ("ONNX", "serving.html"),
        ("pandas", "tabular.html"),
        ("ESMM", "recipes.html"),
        ("custom gate", "own_gate.html"),
        ("PLE", "concepts.html"),
        ("collapse", "collapse.html"),
        ("KerasHub", "decoder.html"),
        ("极化", "collapse.zh.html"),
    ],
)
def test_search_finds_the_page_first(browser, site, query, page):
    assert searched(browser, site, query)[0].startswith(page)


IMPORTANCE = "ImportanceRegularizer"


@pytest.mark.parametrize(
    ("page", "code", "name"),
    [
        ("quickstart", "MMoE", "MMoE"),
        ("faq", "condense(model)", "condense"),
        ("faq", f"weights_regularizer={IMPORTANCE}(0.1)", IMPORTANCE),
        ("datasets", "grouped_tasks", "datasets.grouped_tasks"),
        ("notebooks/01_drop_in", "DenseExperts", "DenseExperts"),
        ("api/regularizers", "Ramp", "Ramp"),
    ],
)
def test_names_in_the_text_link_to_the_api(browser, site, page, code, name):
    browser.get(f"{site}/{page}.html")
    links = browser.execute_script(
        "return [...document.querySelectorAll('article a:has(> code)')]"
        ".map(a => [a.innerText, a.href])"
    )
    (target,) = {address for text, address in links if text == code}
    browser.get(target)
    assert target.startswith(f"{site}/api/")
    entry = browser.find_element("css selector", "dt:target")
    assert entry.get_attribute("id") == f"dselectk_keras.{name}"


@pytest.mark.parametrize("page", pages("api"))
def test_a_page_of_the_api_has_a_line_for_every_entry(browser, site, page):
    browser.get(f"{site}/{page}")
    entries, lines = (
        browser.execute_script(
            f"return [...document.querySelectorAll('{selector}')].map(e => e.{key})"
        )
        for selector, key in (
            ("dl.py:is(.class, .function) > dt.sig", "id"),
            ("table.autosummary td:first-child a", "hash"),
        )
    )
    assert entries
    assert sorted(lines) == sorted(f"#{entry}" for entry in entries)


def shown_at(browser, address, width, theme):
    """Open a page in a window of a width, light or dark."""
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get(address)


# Whatever is wider than the window must be in something that can be scrolled.
CLIPPED = """
const width = document.documentElement.clientWidth;
const scrolls = e => e && (getComputedStyle(e).overflowX == "auto" ||
    scrolls(e.parentElement));
return [...document.querySelectorAll("article :is(p, img, table, pre, h1, h2)")]
    .filter(e => e.getBoundingClientRect().right > width + 1 && !scrolls(e))
    .map(e => e.outerHTML.slice(0, 100));
"""
NARROW = "index quickstart quickstart.zh choosing faq serving tabular api api/gates"
NARROW += " results/benchmark reproduction/dselectk-fig5 notebooks/09_tabular"


@pytest.mark.parametrize("page", NARROW.split())
def test_a_phone_clips_nothing(browser, site, page):
    shown_at(browser, f"{site}/{page}.html", 390, "light")
    assert not browser.execute_script(CLIPPED)
    assert browser.execute_script(
        "return document.documentElement.scrollWidth <= window.innerWidth"
    )


def test_figures_are_light_cards_on_dark_pages(browser, site):
    shown_at(browser, f"{site}/reproduction/dselectk-fig5.html", 1300, "dark")
    page, figure, rounded = browser.execute_script(
        "const style = e => getComputedStyle(document.querySelector(e));"
        "return [style('body').backgroundColor, style('article img').backgroundColor,"
        " style('article img').borderRadius]"
    )
    assert figure == "rgb(255, 255, 255)"
    assert page != figure
    assert rounded != "0px"
