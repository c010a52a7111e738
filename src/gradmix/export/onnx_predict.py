"""Name images, or call them unknown, with onnxruntime, numpy and Pillow: python predict.py a.jpg b.png …"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps


def read_pixels(file: str, size: int, channels: int) -> Any:  # (size, size, channels) uint8
    try:
        im: Any = Image.open(file)
        im.draft(None, (2 * size, 2 * size))  # a large JPEG need not be decoded in full
        im = ImageOps.exif_transpose(im)
        im = Image.fromarray((np.asarray(im) >> 8).astype(np.uint8)) if im.mode[:2] == "I;" else im
        im = Image.alpha_composite(Image.new("RGBA", im.size, "white"), im.convert("RGBA")).convert("RGB")
        side, (x, y) = min(im.size), ((length - min(im.size)) // 2 for length in im.size)
        im = im.crop((x, y, x + side, y + side)).resize((size, size), Image.Resampling.BILINEAR)
        return np.asarray(im.convert("L" if channels == 1 else "RGB")).reshape(size, size, channels)
    except Exception as error:  # Pillow raises errors of many kinds on damaged files
        sys.exit(f"{file} cannot be read: {' '.join(str(error).split()) or type(error).__name__}")


def score_neighbors(features: Any, index: Any, k: int, normalize: str, temperature: float) -> Any:
    z = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    cosines = (z @ index["features"].T).clip(-1, 1)
    alone = np.where(index["exemplars"], cosines, -1)
    parts = [np.split(c, index["offsets"][1:-1], axis=1) for c in (cosines, alone)]  # class by class
    nearest = [np.maximum(np.sort(c)[:, -k:].mean(1), a.max(1)) for c, a in zip(*parts, strict=True)]
    d = k * np.stack(nearest, 1) + index["class_bias"]
    best, shifted, least = d.max(1), (k + d) / 2, 0.001 * k
    return {
        "shifted": shifted.max(1) / np.maximum(shifted.sum(1), least),
        "sum": best / np.maximum(d.sum(1), least),
        "softmax": 1 / np.exp((d - best[:, None]) / (k * temperature)).sum(1),
        "none": best,
        "mean": shifted.max(1) / k,  # of a model that knows one class
    }[normalize], d.argmax(1)


if __name__ == "__main__":
    import onnxruntime

    folder, files = Path(__file__).parent, sys.argv[1:] or sys.exit(__doc__)
    settings, index = json.loads((folder / "settings.json").read_text("utf-8")), np.load(folder / "index.npz")
    images = np.stack([read_pixels(file, settings["image_size"], settings["channels"]) for file in files])
    found = onnxruntime.InferenceSession(folder / "model.onnx").run(None, {"pixels": images})
    scores, classes = score_neighbors(found[0], index, **settings["knn"]) if "knn" in settings else found
    for file, score, c in zip(files, scores, classes, strict=True):
        label = index["class_names"][c] if score >= index["thresholds"][c] else "unknown"
        print(json.dumps([file, str(label), str(index["class_names"][c]), round(float(score), 6)]))
