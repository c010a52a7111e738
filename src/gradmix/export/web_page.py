"""Write a folder of static files that answers in the visitor's browser, without a server of its own."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from ..errors import UserError, first_line
from ..recognition import Recognizer
from .export import new_folder, write_model

RUNTIME = "onnxruntime-web"
RUNTIME_VERSION = "1.30.0"  # the one that is tested; what --runtime names may be another
# What is copied of the package, and how it is called here: .js and .wasm are served rightly everywhere.
_RUNTIME_FILES = {"ort.wasm.bundle.min.mjs": "ort.js", "ort-wasm-simd-threaded.wasm": "ort.wasm"}
_PAGE_FILES = (
    *("index.html", "page.js", "gallery.js", "resize.js", "page.css", "icon.svg"),
    "LICENSE-onnxruntime-web.txt",
)
_MOST_SECONDS = 600


def export_web(recognizer: Recognizer, out: str | Path, detector: str = "", runtime: str | Path = "") -> Path:
    """Write the folder ``out``, which any file server can serve; it appears when it is complete.

    ``runtime``: an unpacked npm package onnxruntime-web; without, npm fetches it.
    """
    if detector:
        recognizer = recognizer.with_detector(detector)
    with new_folder(Path(out)) as part, _find_runtime(runtime) as package:
        version = _copy_runtime(package, part)
        for name in _PAGE_FILES:
            (part / name).write_bytes((resources.files(__package__) / "web" / name).read_bytes())
        about = write_model(recognizer, part / "model.onnx") | {RUNTIME: version}
        about["state"] = hashlib.sha256((part / "model.onnx").read_bytes()).hexdigest()
        (part / "model.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return Path(out)


def _copy_runtime(package: Path, part: Path) -> str:
    """Copy what the page needs of onnxruntime-web; return its version."""
    try:
        found = json.loads((package / "package.json").read_text(encoding="utf-8"))
        if found["name"] != RUNTIME:
            raise UserError(f"{package} holds the package {found['name']}, not {RUNTIME}")
        for name, here in _RUNTIME_FILES.items():
            shutil.copyfile(package / "dist" / name, part / here)
        return str(found["version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{package} is not an unpacked {RUNTIME} ({first_line(error)}); npm install {RUNTIME}, and then "
            f"--runtime node_modules/{RUNTIME}"
        ) from error


@contextmanager
def _find_runtime(given: str | Path) -> Iterator[Path]:
    """Give the folder of the package: the one that is given, or one that npm has fetched."""
    if given:
        yield Path(given)
        return
    npm = shutil.which("npm")
    way_out = f"give it: --runtime DIR, an unpacked {RUNTIME} (npm install {RUNTIME} elsewhere, and copy it)"
    if npm is None:
        raise UserError(f"the page needs {RUNTIME}, and there is no npm to fetch it with; {way_out}")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", f"{RUNTIME}@{RUNTIME_VERSION}", "--silent"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_MOST_SECONDS)
            if done.returncode:
                raise UserError(
                    f"npm could not fetch {RUNTIME} ({' '.join(done.stderr.split())[:150]}); {way_out}"
                )
            (archive,) = Path(folder).glob("*.tgz")
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
        except (OSError, ValueError, subprocess.TimeoutExpired, tarfile.TarError) as error:
            raise UserError(f"npm could not fetch {RUNTIME} ({first_line(error)}); {way_out}") from error
        yield Path(folder) / "package"
