"""Name images, or call them unknown, with onnxruntime, numpy and Pillow: python predict.py a.jpg b.png …"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps


def pixels(file: str, size: int, channels: int) -> Any:  # (size, size, channels) uint8
    image: Any = Image.open(file)
    image.draft(None, (2 * size, 2 * size))  # a large JPEG need not be decoded in full
    image = ImageOps.exif_transpose(image)
    image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)) if image.mode[:2] == "I;" else image
    image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    side, (left, top) = min(image.size), ((length - min(image.size)) // 2 for length in image.size)
    image = image.convert("RGB").crop((left, top, left + side, top + side))
    image = image.resize((size, size), Image.Resampling.BILINEAR).convert("L" if channels == 1 else "RGB")
    return np.asarray(image).reshape(size, size, channels)


def score_and_class(features: Any, index: Any, k: int, normalize: str, temperature: float) -> Any:
    z = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    cosines = np.split(z @ index["features"].T, index["offsets"][1:-1], axis=1)  # class by class
    d = np.stack([k * np.sort(c)[:, -k:].clip(-1, 1).mean(1) for c in cosines], 1) + index["head_start"]
    best, shifted, least = d.max(1), (k + d) / 2, 0.001 * k
    scores = {
        "shifted": shifted.max(1) / np.maximum(shifted.sum(1), least),
        "sum": best / np.maximum(d.sum(1), least),
        "softmax": 1 / np.exp((d - best[:, None]) / (k * temperature)).sum(1),
        "none": best,
        "mean": shifted.max(1) / k,  # of a model that knows one class
    }
    return scores[normalize], d.argmax(1)


if __name__ == "__main__":
    import onnxruntime

    folder, files = Path(__file__).parent, sys.argv[1:]
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    index = np.load(folder / "index.npz")
    images = np.stack([pixels(file, settings["image_size"], settings["channels"]) for file in files])
    found = onnxruntime.InferenceSession(folder / "model.onnx").run(None, {"pixels": images})
    scores, classes = score_and_class(found[0], index, **settings["knn"]) if "knn" in settings else found
    for file, score, c in zip(files, scores, classes, strict=True):
        label = index["class_names"][c] if score >= index["thresholds"][c] else "unknown"
        print(json.dumps([file, str(label), str(index["class_names"][c]), round(float(score), 6)]))
