"""The page that answers in the visitor's browser: written, refused, and used from a plain file server."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from gradmix.detection import Outputs
from gradmix.errors import UserError
from gradmix.export import export_web
from gradmix.export.onnx_graph import PValues
from gradmix.export.onnx_predict import read_pixels
from gradmix.recognition import Recognizer, fit
from tests.training.tiny import shape_image, tiny_images, tiny_recipe

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
READ_PIXELS = """async ([encoded, size]) => {
  const { readPixels } = await import("./resize.js");
  const file = await (await fetch("data:image/jpeg;base64," + encoded)).blob();
  return Array.from(await readPixels(file, size, 3));
}"""
FILES = {"index.html", "page.js", "gallery.js", "resize.js", "page.css", "icon.svg", "ort.js", "ort.wasm"}
FILES |= {"model.onnx", "model.json", "LICENSE-onnxruntime-web.txt"}


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    """Knows three shapes, and a fourth that was taught."""
    known = fit(tiny_images(24), tiny_recipe(epochs=15, holdout=0.25, false_reject=0.1))
    return known.enroll("cross", tiny_images(6, ("cross",), 3))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder that looks like the npm package."""
    folder = tmp_path / "package"
    (folder / "dist").mkdir(parents=True)
    (folder / "package.json").write_text('{"name": "onnxruntime-web", "version": "9.9"}')
    for name in ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"):
        (folder / "dist" / name).write_text(name)
    return folder


def test_what_is_refused_leaves_nothing(
    recognizer: Recognizer, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(what: str, runtime: Path | str) -> None:
        with pytest.raises(UserError, match=what):
            export_web(recognizer, tmp_path / "web", runtime=runtime)
        assert [file.name for file in tmp_path.iterdir()] == ["package"]

    fails("is not an unpacked onnxruntime-web", tmp_path / "nowhere")
    (package / "package.json").write_text('{"name": "react", "version": "1"}')
    fails("holds the package react, not onnxruntime-web", package)
    (package / "package.json").write_text("[1]")
    fails("is not an unpacked onnxruntime-web", package)
    false = shutil.which("false")
    monkeypatch.setattr("gradmix.export.web_page.shutil.which", lambda name: None)
    fails("there is no npm to fetch it with; give it: --runtime DIR", "")
    monkeypatch.setattr("gradmix.export.web_page.shutil.which", lambda name: false)
    fails("npm could not fetch onnxruntime-web", "")
    (tmp_path / "web").mkdir()
    with pytest.raises(UserError, match="exists already"):
        export_web(recognizer, tmp_path / "web", runtime=package)


@pytest.mark.parametrize("per_class", [False, True])
def test_p_values_in_a_graph_are_those_of_the_model(recognizer: Recognizer, per_class: bool) -> None:
    for known in (recognizer.recalibrate(0.2, per_class=per_class), replace(recognizer, calibration=None)):
        found = known.predict(tiny_images(12, ("bar", "disc", "square", "cross"), seed=8))
        graph = PValues(known.decision, len(known.class_names))
        assert torch.equal(graph(found.score, found.nearest), found.p_value)


def test_without_known_scores_there_is_no_p_value(recognizer: Recognizer) -> None:
    decision = replace(recognizer.decision, known=None)
    scores = decision.scores(recognizer.outputs(tiny_images(1)))
    assert isinstance(recognizer.calibration, Outputs)
    assert bool(PValues(decision, 4)(scores.score, scores.label).isnan().all())


@pytest.mark.slow
def test_the_folder(recognizer: Recognizer, package: Path, tmp_path: Path) -> None:
    out = export_web(recognizer, tmp_path / "deep" / "web", runtime=package)
    assert {file.name for file in out.iterdir()} == FILES
    about = json.loads((out / "model.json").read_text())
    assert about["class_names"] == list(recognizer.class_names)
    assert about["onnxruntime-web"] == "9.9"
    session = onnxruntime.InferenceSession(out / "model.onnx")
    inside = json.loads(session.get_modelmeta().custom_metadata_map["gradmix"])
    assert inside == {key: about[key] for key in inside}
    images = tiny_images(8, ("bar", "disc", "square", "cross"), seed=9)
    pixels = images.images[:].permute(0, 2, 3, 1).contiguous().numpy()
    score, nearest, label, p_value = session.run(None, {"pixels": pixels})
    found = recognizer.predict(images)
    np.testing.assert_allclose(score, found.score.numpy(), atol=1e-4)
    assert nearest.tolist() == found.nearest.tolist()
    assert label.tolist() == found.label.tolist()
    np.testing.assert_allclose(
        p_value, found.p_value.numpy(), atol=1.5 / 19
    )  # a rank, where scores are equal


@contextmanager
def file_server(folder: Path) -> Iterator[str]:
    words = [
        sys.executable,
        "-u",
        "-m",
        "http.server",
        "0",
        "--bind",
        "127.0.0.1",
        "--directory",
        str(folder),
    ]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"port (\d+)", server.stdout.readline())
        assert found
        yield f"127.0.0.1:{found[1]}"
    finally:
        server.terminate()
        server.wait(60)


@contextmanager
def open_page(address: str, **options: Any) -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    if CHROMIUM is None and not os.environ.get("CI"):
        pytest.skip("no chromium on this machine: apt install chromium")
    assert CHROMIUM, "CI must have chromium"
    words = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=words)
        page = browser.new_page(viewport={"width": 360, "height": 800})
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        if script := options.get("script"):
            page.add_init_script(script)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"http://{address}/")
        page.wait_for_selector("body[data-ready]")
        yield page
        browser.close()
    assert {urlsplit(url).netloc for url in asked if not url.startswith(("data:", "blob:"))} == {address}


@pytest.mark.slow
def test_in_a_browser(recognizer: Recognizer, tmp_path: Path) -> None:
    """The same answers as `gradmix predict`, for images that must be cut, turned, laid on white, resized."""
    from playwright.sync_api import expect

    folder, rng = tmp_path / "images", np.random.default_rng(3)
    folder.mkdir()
    for kind in ("bar", "disc", "square", "cross"):
        large = Image.fromarray(shape_image(kind, rng)).resize((150, 97), Image.Resampling.BICUBIC)
        large.save(folder / f"{kind}-large.png")
        Image.fromarray(shape_image(kind, rng)).save(folder / f"{kind}.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    large.save(tmp_path / "turned.jpg", exif=exif, quality=95, subsampling=0)
    large.convert("L").save(folder / "grey.png")
    large.putalpha(Image.new("L", large.size, 0))
    large.save(folder / "clear.png")
    (folder / "broken.png").write_bytes(b"no image")
    files = sorted(folder.iterdir())
    whole = [file for file in files if file.name != "broken.png"]
    found = recognizer.predict(recognizer.read(*whole))
    expected = {file.name: i for i, file in enumerate(whole)}
    runtime = os.environ.get("ONNXRUNTIME_WEB", "")
    if not (runtime or shutil.which("npm") or os.environ.get("CI")):
        pytest.skip("no npm on this machine, and $ONNXRUNTIME_WEB names no unpacked onnxruntime-web")
    out = export_web(recognizer, tmp_path / "web", runtime=runtime)
    with file_server(out) as address:
        with open_page(address) as page:
            page.set_input_files("#drop input", files)
            expect(page.locator("#cards .card:not(.waiting)")).to_have_count(len(files))
            expect(page.locator("#counts")).to_have_text(re.compile(r"^\d+ known, \d+ unknown$"))
            expect(page.locator("#cards .card.bad")).to_contain_text("broken.png is no image")
            assert page.evaluate("document.documentElement.scrollWidth") == 360
            size = recognizer.image_format.size  # a JPEG is decoded a little differently, but turned
            encoded = base64.b64encode((tmp_path / "turned.jpg").read_bytes()).decode()
            pixels = np.array(page.evaluate(READ_PIXELS, [encoded, size])).reshape(size, size, 3)
            wanted = read_pixels(str(tmp_path / "turned.jpg"), size, 3).astype(float)
            off = [float(np.abs(np.rot90(pixels, turns) - wanted).mean()) for turns in range(4)]
            assert off[0] < min(off[1:]) / 3
            assert off[0] < 5
            with page.expect_download() as download:
                page.click("#save-csv")
            rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text("utf-8"))))
            if folder_for := os.environ.get("GRADMIX_PICTURES"):
                page.screenshot(path=Path(folder_for) / "web-page.png", full_page=True)
        assert {row["file"] for row in rows} == {file.name for file in files}
        for row in (row for row in rows if not row["error"]):
            i = expected[row["file"]]
            assert float(row["score"]) == pytest.approx(float(found.score[i]), abs=1e-3), row["file"]
            assert row["nearest"] == recognizer.class_names[int(found.nearest[i])]
            if abs(float(found.score[i] - found.threshold[i])) > 1e-3:
                assert row["label"] == found.names()[i]
        with open_page(address, script="delete window.WebAssembly") as page:
            expect(page.locator("#told.bad")).to_contain_text("This browser has no WebAssembly")
            expect(page.locator("#drop")).to_be_hidden()
