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


if __name__ == "__main__":
    import onnxruntime

    files = sys.argv[1:] or sys.exit(__doc__)
    session = onnxruntime.InferenceSession(Path(__file__).with_name("model.onnx"))
    about = json.loads(session.get_modelmeta().custom_metadata_map["gradmix"])
    images = np.stack([read_pixels(file, about["image_size"], about["channels"]) for file in files])
    names = [*about["class_names"], "unknown"]  # a label of -1 is the last
    for file, score, nearest, label, p in zip(files, *session.run(None, {"pixels": images}), strict=True):
        print(json.dumps([file, names[label], names[nearest], round(float(score), 6), round(float(p), 6)]))
