"""Draw docs/images/photos.png: what a model of six classes answers to photographs that anybody may copy.

    python examples/readme_picture.py --work build/picture --out docs/images/photos.png

The model is that of `gradmix train photos/ --out run`, with 60 photos per class of TinyImageNet. It is shown
photographs that come with scikit-image and scikit-learn (both have to be installed); then it is taught cats,
from 20 small pictures of CIFAR10. Every answer is printed, and those of the picture are drawn as they are.
$GRADMIX_DATA is the folder in which both data sets lie.
"""

from __future__ import annotations

import argparse
import contextlib
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from walkthrough import gradmix, save_photos, tiny_imagenet

from gradmix import OpenSetClassifier, load_images
from gradmix.recognition import Explanation

KNOWN = ("espresso", "monarch", "lakeside", "red-panda", "bullet-train", "barn")
PER_CLASS, CATS = 60, 20
SHOWN = ("coffee.png", "rocket.jpg", "astronaut.png", "chelsea.png")  # public domain
ALSO_ASKED = ("china.jpg", "flower.jpg")  # CC BY 2.0: printed, not drawn
GREEN, RED, GRAY = "#1a7f37", "#c0392b", "#6b7280"


def make_answers() -> list[tuple[Explanation, str]]:
    """Train, ask, teach cats, ask about the cat again: return the answers to draw, with a note each."""
    train = tiny_imagenet(None, "train")
    for name in KNOWN:
        save_photos(train, name, slice(PER_CLASS), Path("photos") / name)
    save_cats(Path("cats"))
    gradmix("train photos/ --out run")
    first = ask(*SHOWN, *ALSO_ASKED)[: len(SHOWN)]
    gradmix("enroll run --name cat cats/")
    taught = ask(*SHOWN, *ALSO_ASKED)[SHOWN.index("chelsea.png")]
    return [*((answer, "") for answer in first), (taught, f"after enrolling\n{CATS} cats")]


def save_cats(folder: Path) -> None:
    images = load_images("cifar10", split="train")
    folder.mkdir()
    rows = (images.labels == images.class_names.index("cat")).nonzero()[:CATS, 0]
    for number, picture in enumerate(images.images[rows].permute(0, 2, 3, 1).numpy()):
        Image.fromarray(picture).save(folder / f"{number:03d}.png")


def ask(*names: str) -> list[Explanation]:
    answers = OpenSetClassifier.load("run").explain([str(find_photo(name)) for name in names])
    for name, answer in zip(names, answers, strict=True):
        nearest = answer.classes[0].name
        print(f"{name:14s} {answer.label:9s} {answer.score:.4f} of {answer.threshold:.4f}, nearest {nearest}")
    return list(answers)


def find_photo(name: str) -> Path:
    """Return the file of scikit-image or scikit-learn; neither is imported."""
    for package, folder in (("skimage", "data"), ("sklearn", "datasets/images")):
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            if (file := Path(place, folder, name)).exists():
                return file
    raise SystemExit(f"{name} comes with scikit-image or scikit-learn: install them first")


def draw(answers: list[tuple[Explanation, str]], file: Path) -> None:
    """One column per answer: its name, the photograph, where the network looked, score and threshold."""
    figure = plt.figure(figsize=(12, 7.2), dpi=100, facecolor="white")
    edges = {"left": 0.005, "right": 0.995, "top": 0.845, "bottom": 0.075}
    grid = figure.add_gridspec(
        3, len(answers), height_ratios=(10, 10, 2.2), wspace=0.06, hspace=0.05, **edges
    )
    known = ", ".join(name.replace("-", " ") for name in KNOWN)
    legend = "second row: where the network looked      bar: score      black line: threshold"
    figure.text(0.5, 0.955, f"It has learned: {known}", fontsize=19, ha="center", va="center")
    figure.text(0.5, 0.03, legend, fontsize=15, ha="center", va="center", color=GRAY)
    top = 1.15 * max(max(answer.score, answer.threshold) for answer, _ in answers)
    for column, (answer, note) in enumerate(answers):
        color = GREEN if answer.known else RED
        photo, heat = answer.image.permute(1, 2, 0).numpy(), answer.heat.numpy()
        above, below, bar = (figure.add_subplot(grid[row, column]) for row in range(3))
        above.imshow(photo)
        above.set_title(answer.label, color=color, fontsize=25, fontweight="bold", pad=8)
        box = {"facecolor": GREEN, "edgecolor": "none", "pad": 4}
        if note:
            above.text(112, 220, note, ha="center", va="bottom", fontsize=15, color="white", bbox=box)
        below.imshow(photo.mean(axis=2), cmap="gray")
        below.imshow(heat, cmap="inferno", alpha=np.clip(0.15 + heat, 0, 0.75))
        for axes in (above, below):
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set(color=color, linewidth=4)
        bar.barh(0, max(answer.score, 0.01), height=0.5, color=color)
        bar.vlines(answer.threshold, -0.4, 0.4, color="black", linewidth=3)
        bar.text(0, -1, f"{answer.score:.3f}", color=color, fontsize=17, va="center", fontweight="bold")
        bar.text(answer.threshold, -1, f"{answer.threshold:.3f}", fontsize=17, va="center", ha="center")
        bar.set(xlim=(0, top), ylim=(-1.4, 0.5))
        bar.axis("off")
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="a folder that is not there yet")
    parser.add_argument("--out", type=Path, required=True, help="the picture, a PNG")
    args = parser.parse_args()
    file = args.out.resolve()
    args.work.mkdir(parents=True)
    with contextlib.chdir(args.work):
        answers = make_answers()
    draw(answers, file)
    picture = Image.open(file).convert("RGB")
    small = picture.quantize(palette=picture.quantize(256), dither=Image.Dither.FLOYDSTEINBERG)
    colors, paper = list(small.getpalette() or ()), small.getpixel((0, 0))
    colors[3 * paper : 3 * paper + 3] = (255, 255, 255)  # the nearest of 256 colors was a little gray
    small.putpalette(colors)
    small.save(file, optimize=True)


if __name__ == "__main__":
    main()
