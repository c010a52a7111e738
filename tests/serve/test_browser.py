"""A person's whole way, in a real browser, against a real server: nothing is asked of any other host.

Drop digits, see which are known, look why, name a group of unknown ones, teach it, and drop others like them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from gradmix.demo import demo_data
from gradmix.recognition import fit, load, save
from gradmix.training import load_recipe
from tests.serve.conftest import TOKEN, server_process

pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SHORT = {"max_steps": 150, "batch_size": 64}


@dataclass
class Visit:
    """An open page, and all that it asked for."""

    page: Page
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def drop(self, files: list[Path]) -> None:
        self.page.set_input_files("#drop input[type=file]", files)

    def labels(self) -> list[str]:
        return self.page.locator("#cards .card .name").all_inner_texts()


@pytest.fixture(scope="module")
def digits_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Knows six of ten digits, after half a minute's training. With GRADMIX_DEMO_RUN: a finished demo."""
    file = tmp_path_factory.mktemp("digits") / "model.safetensors"
    finished = os.environ.get("GRADMIX_DEMO_RUN")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADMIX_CACHE", str(file.parent / "cache"))
        save(load(finished) if finished else fit(demo_data().train, load_recipe("demo", SHORT)), file)
    return file


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Test digits as files: known-2-0.png …, new-0-0.png …"""
    folder, data = tmp_path_factory.mktemp("images"), demo_data()
    known = [data.test_known.class_names[i] for i in data.test_known.labels.tolist()]
    for kind, images, names in (
        ("known", data.test_known, known),
        ("new", data.test_unknown, list(data.unknown_names)),
    ):
        counts: dict[str, int] = {}
        for image, name in zip(images.images[:], names, strict=True):
            number = counts[name] = counts.get(name, -1) + 1
            if number < 30:
                Image.fromarray(image[0].numpy()).save(folder / f"{kind}-{name}-{number}.png")
    return folder


@pytest.fixture
def visit(digits_model: Path, tmp_path: Path) -> Iterator[Visit]:
    if CHROMIUM is None and not os.environ.get("CI"):
        pytest.skip("no chromium on this machine: apt install chromium")
    assert CHROMIUM, "CI must have chromium"
    model = Path(shutil.copy(digits_model, tmp_path / "model.safetensors"))
    with server_process(model, token=TOKEN) as (port, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        page = browser.new_page(viewport={"width": 1180, "height": 980}, device_scale_factor=1)
        found = Visit(page)
        page.on("request", lambda request: found.asked.append(request.url))
        page.on("console", lambda said: found.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector("#drop .drop")
        yield found
        browser.close()
    foreign = {url for url in found.asked if urlsplit(url).netloc != f"127.0.0.1:{port}"}
    assert {url for url in foreign if not url.startswith(("data:", "blob:"))} == set()
    assert found.complaints == []


def test_the_whole_way(visit: Visit, digits: Path, tmp_path: Path) -> None:
    page = visit.page
    known = [digits / f"known-{name}-{i}.png" for name in "234589" for i in range(1)]
    new = [digits / f"new-{name}-{i}.png" for name in "01" for i in range(7)]

    visit.drop([*known, *new])
    expect(page.locator("#cards .card")).to_have_count(20)
    before = visit.labels()
    assert set(before) <= {"unknown", *"234589"}
    assert sum(label == path.name[6] for label, path in zip(before, known, strict=False)) >= 4
    assert "unknown" in before[6:]
    expect(page.locator("#cards .told")).to_have_text(re.compile(r"^\d+ known, \d+ unknown$"))

    page.locator("#cards .card").nth(0).click()
    expect(page.locator("#why figcaption").first).to_have_text("known-2-0.png")
    expect(page.locator("#why .verdict")).to_contain_text("score")
    assert page.locator("#why img.heat").evaluate("image => image.naturalWidth") > 0
    assert page.locator("#why .tile img").count() == 12  # four neighbours of three classes
    assert page.locator("#why .tile img").first.evaluate("image => image.naturalWidth") > 0
    expect(page.locator("#cards .card").nth(0)).to_have_attribute("aria-pressed", "true")

    page.locator("#cards .card.unknown").first.click()
    expect(page.locator("#why .verdict.unknown")).to_contain_text("most like")
    _picture(page, "serve-page.png")

    group = page.locator("#groups .group").first
    group.click()
    expect(group).to_have_attribute("aria-pressed", "true")
    page.fill("#name input, #name textarea", "zero")
    page.click("#teach")
    expect(page.locator("#told .message.bad")).to_have_text("changing the model needs the token")
    page.fill("#token input", "not-the-token")
    page.click("#teach")
    expect(page.locator("#told .message.bad")).to_have_text("this is not the token")
    assert load(tmp_path / "model.safetensors").class_names == tuple("234589")

    page.fill("#token input", TOKEN)
    page.click("#teach")
    expect(page.locator("#told .message:not(.bad)")).to_contain_text("The model knows 'zero' now")
    expect(page.locator(".chip.taught")).to_have_text("zero")
    assert load(tmp_path / "model.safetensors").class_names == (*"234589", "zero")
    assert "zero" in visit.labels()[6:]
    _picture(page, "serve-taught.png")

    page.reload()  # a new visitor, who drops others of the same kind
    page.wait_for_selector("#drop .drop")
    expect(page.locator(".chip.taught")).to_have_text("zero")
    visit.drop([digits / f"new-{name}-{i}.png" for name in "01" for i in range(10, 22)])
    expect(page.locator("#cards .card")).to_have_count(24)
    assert "zero" in visit.labels()


def test_what_goes_wrong_is_said(visit: Visit, digits: Path, tmp_path: Path) -> None:
    page = visit.page
    broken = tmp_path / "<img src=x onerror=alert()> ${1+1} {{value}}.png"
    broken.write_bytes(b"no image")
    visit.drop([broken])
    expect(page.locator("#refused .message.bad")).to_contain_text("is not an image in a known format")
    visit.drop([broken, digits / "known-2-0.png"])  # one that is, beside it
    expect(page.locator("#cards .card.bad")).to_contain_text(broken.name)
    expect(page.locator("#refused .message")).to_have_count(0)
    assert page.locator("#cards .card:not(.bad)").count() == 1
    visit.drop([digits / "known-2-0.png"] * 65)
    expect(page.locator("#drop .drop-note")).to_have_text("65 images at once; 64 is the limit.")


def _picture(page: Page, name: str) -> None:
    """For the documentation, if asked for: GRADMIX_PICTURES is the folder."""
    folder = os.environ.get("GRADMIX_PICTURES")
    if folder:
        page.screenshot(path=Path(folder) / name, full_page=True)
