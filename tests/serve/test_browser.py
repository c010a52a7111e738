"""A person's whole way, in a real browser, against a real server: nothing is asked of any other host.

Drop digits, see which are known, look why, teach a group of unknown ones, correct an answer, undo, reload.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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

    def wait_for_answers(self, count: int) -> None:
        """Wait until so many images have an answer, and what follows from them is there, too."""
        expect(self.page.locator("#cards .card:not(.waiting)")).to_have_count(count)
        expect(self.page.locator("#counts")).to_have_text(re.compile(r"^\d+ known, \d+ unknown$"))
        expect(self.page.locator("body.busy")).to_have_count(0)


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


@contextmanager
def open_page(model: Path, width: int) -> Iterator[Visit]:
    if CHROMIUM is None and not os.environ.get("CI"):
        pytest.skip("no chromium on this machine: apt install chromium")
    assert CHROMIUM, "CI must have chromium"
    with (
        server_process(model, "--max-images", "16", token=TOKEN) as (port, _),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
                *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),
            ],
        )
        page = browser.new_page(viewport={"width": width, "height": 980}, device_scale_factor=1)
        found = Visit(page)
        page.on("request", lambda request: found.asked.append(request.url))
        page.on("console", lambda said: found.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector("body[data-ready]")
        yield found
        browser.close()
    foreign = {url for url in found.asked if urlsplit(url).netloc != f"127.0.0.1:{port}"}
    assert {url for url in foreign if not url.startswith(("data:", "blob:"))} == set()
    refused = "the server responded with a status of 4"  # the browser says so of every refusal
    assert [text for text in found.complaints if refused not in text] == []


@pytest.fixture
def model(digits_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(digits_model, tmp_path / "model.safetensors"))


def test_the_whole_way(model: Path, digits: Path) -> None:
    known = [digits / f"known-{name}-0.png" for name in "234589"]
    new = [digits / f"new-{name}-{i}.png" for name in "01" for i in range(7)]
    with open_page(model, 1180) as visit:
        page = visit.page
        page.click("#hint button")
        visit.drop([*known, *new])  # more than the server takes at once
        visit.wait_for_answers(20)
        before = visit.labels()
        assert set(before) <= {"unknown", *"234589"}
        assert sum(label == path.name[6] for label, path in zip(before, known, strict=False)) >= 4
        assert "unknown" in before[6:]

        page.locator("#cards .card.unknown").first.click()
        expect(page.locator("#why .verdict.unknown")).to_contain_text("most like")
        assert page.locator("#why img.heat").evaluate("image => image.naturalWidth") > 0
        assert page.locator("#why .tile img").count() == 12  # four neighbours of three classes
        expect(page.locator("#groups .group").first).to_be_visible()
        _picture(page, "serve-page.png")

        group = page.locator("#groups .group").first
        group.locator("b").click()
        expect(group).to_have_attribute("aria-current", "true")
        members = group.locator(".tile").count()
        page.locator("#groups .group").first.locator(".tile").first.click()  # this one does not belong
        page.fill("#name", "zero")
        expect(page.locator("#teach")).to_have_text(f"Teach {members - 1} images")
        page.click("#teach")
        expect(page.locator("#told.bad")).to_have_text(
            "Changing the model needs the token: write it into the box."
        )
        page.fill("#token", "not-the-token")
        page.click("#teach")
        expect(page.locator("#told.bad")).to_have_text("This is not the token.")
        assert load(model).class_names == tuple("234589")

        page.fill("#token", TOKEN)
        page.click("#teach")
        expect(page.locator("#told")).to_contain_text(f"The model knows zero now, from {members - 1} images")
        visit.wait_for_answers(20)
        assert load(model).class_names == (*"234589", "zero")
        assert visit.labels().count("zero") >= members - 1  # what was just taught is recognized
        page.click("#classes summary")
        expect(page.locator("#classes .class.taught")).to_contain_text("zero")
        expect(page.locator("#classes .class.taught img")).to_have_count(min(8, members - 1))
        _picture(page, "serve-taught.png")

        wrong = page.locator("#cards .card").nth(0)  # no, it is a nine
        wrong.click()
        page.fill("#correct input", "9")
        page.click("#correct button")
        expect(page.locator("#told")).to_contain_text("The model knows 9 now")
        visit.wait_for_answers(20)
        assert visit.labels()[0] == "9"
        page.click("#undo")
        expect(page.locator("#told")).to_contain_text("Undone. The model is as it was")
        visit.wait_for_answers(20)
        assert visit.labels()[0] != "9"

        page.reload()  # nothing is lost
        page.wait_for_selector("body[data-ready]")
        visit.wait_for_answers(20)
        expect(page.locator("#hint")).to_be_hidden()
        assert "zero" in visit.labels()
        page.check("#only-unknown")
        assert set(visit.labels()) <= {"unknown"}
        with page.expect_download() as download:
            page.click("#save-csv")
        rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text("utf-8"))))
        assert [row["file"] for row in rows] == [path.name for path in [*known, *new]]
        assert {row["label"] for row in rows} <= {"unknown", "zero", *"234589"}


def test_on_a_phone(model: Path, digits: Path, tmp_path: Path) -> None:
    broken = tmp_path / "<img src=x onerror=alert()> ${1+1} {{value}}.png"
    broken.write_bytes(b"no image")
    with open_page(model, 360) as visit:
        page = visit.page
        expect(page.locator("#hint")).to_be_visible()
        visit.drop([broken])  # alone: the whole request is refused
        expect(page.locator("#cards .card.bad")).to_contain_text("is not an image in a known format")
        page.click("#clear")
        visit.drop([broken, *(digits / f"new-1-{i}.png" for i in range(4))])
        visit.wait_for_answers(5)
        expect(page.locator("#cards .card.bad")).to_contain_text(broken.name)
        page.click("#camera")
        expect(page.locator("video")).to_have_js_property("paused", False)
        page.click(".shoot")
        visit.wait_for_answers(6)
        page.locator("#cards button.card").first.click()
        expect(page.locator("#why img.heat")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        _picture(page, "serve-phone.png")


def _picture(page: Page, name: str) -> None:
    """For the documentation, if asked for: GRADMIX_PICTURES is the folder."""
    folder = os.environ.get("GRADMIX_PICTURES")
    if folder:
        page.screenshot(path=Path(folder) / name, full_page=True)
