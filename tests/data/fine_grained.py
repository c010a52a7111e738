"""CUB-200-2011, Stanford Cars and FGVC-Aircraft in the form in which they are distributed, but tiny.

Every image is one color that tells its class and its number: (class, number, 7).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.io
from PIL import Image

SIDE = 8


def save(file: Path, class_index: int, number: int) -> None:
    """JPEG would change the color: PNG bytes under the official name, which is what decoding looks at."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (SIDE, SIDE), (class_index, number, 7)).save(file, "PNG")


def make_cub(folder: Path, n_classes: int = 200) -> None:
    """One training and two test images per class; image numbers run through."""
    names = [f"{c + 1:03d}.Bird_{c % 7}" for c in range(n_classes)]
    images, labels, split = [], [], []
    for c, name in enumerate(names):
        for i in range(3):
            number = len(images) + 1
            images.append(f"{number} {name}/Bird_{i}_{number}.jpg")
            labels.append(f"{number} {c + 1}")
            split.append(f"{number} {int(i == 0)}")
            save(folder / "images" / name / f"Bird_{i}_{number}.jpg", c, i)
    classes = [f"{c + 1} {name}" for c, name in enumerate(names)]
    for file, lines in (
        ("images.txt", images),
        ("image_class_labels.txt", labels),
        ("train_test_split.txt", split),
        ("classes.txt", classes),
    ):
        (folder / file).write_text("\n".join(lines) + "\n")


def make_cars(folder: Path, n_classes: int = 196, labels_in_devkit: bool = False) -> None:
    """Two training images and one test image per class, annotated as MATLAB struct arrays."""
    devkit = folder / "devkit"
    devkit.mkdir(parents=True)
    names = np.empty((1, n_classes), object)
    names[0] = [f"Maker Model {c} Sedan 2012" for c in range(n_classes)]
    scipy.io.savemat(devkit / "cars_meta.mat", {"class_names": names})
    for split, each, file in (
        ("train", 2, devkit / "cars_train_annos.mat"),
        ("test", 1, (devkit if labels_in_devkit else folder) / "cars_test_annos_withlabels.mat"),
    ):
        fields = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname")
        table = np.empty((1, each * n_classes), [(name, object) for name in fields])
        for i in range(each * n_classes):
            c = i % n_classes
            name = f"{i + 1:05d}.jpg"
            table[0, i] = (1, 1, SIDE, SIDE, np.uint8(c + 1), name)
            save(folder / f"cars_{split}" / name, c, i // n_classes + (100 if split == "test" else 0))
        scipy.io.savemat(file, {"annotations": table})


def make_aircraft(folder: Path, n_classes: int = 100) -> None:
    """One training, one validation and one test image per variant; names with spaces and slashes."""
    # In this order the names are not sorted, as text of them is.
    names = [f"{('A3', 'F/A-', 'Cessna ', '7')[c % 4]}{c:02d}" for c in range(n_classes)]
    order = {name: c for c, name in enumerate(sorted(names))}
    data = folder / "data"
    lists: dict[str, list[str]] = {"train": [], "val": [], "trainval": [], "test": []}
    for c, name in enumerate(names):
        for i, split in enumerate(("train", "val", "test")):
            number = f"{1_000_000 + 3 * c + i}"
            save(data / "images" / f"{number}.jpg", order[name], i)
            for in_list in (split, "trainval") if split != "test" else ("test",):
                lists[in_list].append(f"{number} {name}")
    for split, lines in lists.items():
        (data / f"images_variant_{split}.txt").write_text("\n".join(lines) + "\n")
    (data / "variants.txt").write_text("\n".join(names) + "\n")
