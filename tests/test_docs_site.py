"""The documentation site: built without a warning, complete, and asking no other host for anything."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
import types
from html.parser import HTMLParser
from pathlib import Path

import pytest

import gradmix

ROOT = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Requests(HTMLParser):
    """What a browser fetches by itself when it opens a page; links to click on are not among it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag in ("script", "img", "iframe", "source", "video"):
            self.found.append(given.get("src") or "")
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.found.append(given.get("href") or "")


@pytest.mark.parametrize("name", ["github_markdown.py", "api/docstrings.py"])
def test_what_mkdocs_is_given(name: str) -> None:
    """They are no modules of the package, so their doctests run here."""
    module = types.ModuleType("given")
    exec(compile((ROOT / "docs" / name).read_text(encoding="utf-8"), name, "exec"), vars(module))
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as ``make docs`` does, or has done ($GRADMIX_SITE); a warning would have ended it."""
    if given := os.environ.get("GRADMIX_SITE"):
        return Path(given)
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_there_and_asks_no_other_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert {page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")} <= {
        page.relative_to(site).with_suffix("") for page in pages
    }
    for page in pages:
        html = page.read_text(encoding="utf-8")
        assert [r for r in Requests(html).found if re.match(r"(https?:)?//", r)] == [], page
        unread = re.search(r"<p>((?!</p>).)*\n(- |\|)", html, re.DOTALL)
        assert not unread, f"{page.name}: a list or table was not taken for one"
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import )[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style


@pytest.mark.slow
def test_the_reference_has_all_that_the_package_shows(site: Path) -> None:
    reference = "".join(page.read_text(encoding="utf-8") for page in (site / "api").glob("*.html"))
    for name in gradmix.__all__:
        assert name == "__version__" or re.search(rf'<h2 id="gradmix\.[\w.]*\b{name}"', reference), name


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM and "CI" not in os.environ, reason="no Chromium to open the pages with")
def test_search_works_from_a_folder(site: Path) -> None:
    """Without a server and without a network; docs/iframe-worker.js makes it so."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "tour.html").as_uri())
        page.fill("input.md-search__input", "conformal")
        page.wait_for_selector(".md-search-result__item", timeout=60_000)
        assert "calibration" in page.inner_text(".md-search-result__list").lower()
        browser.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
