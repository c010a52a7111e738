"""How well ``gradmix data check --model`` finds wrong labels and planted duplicates, on CIFAR10.

Images of the test part, of which every fiftieth gets the label of another class, drawn at random, and every
hundredth comes twice: mirrored, brighter, and moved by two pixels. The model is the recipe ``photos`` made
from images of the training part. Prints precision and recall of both.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import torch

from gradmix.data import ImageSet, load_images
from gradmix.recognition import fit
from gradmix.recognition.review import DUPLICATE, MISLABELLED, review_images
from gradmix.training import load_recipe


def draw(images: ImageSet, per_class: int, generator: torch.Generator) -> ImageSet:
    """Return ``per_class`` images of each class."""
    rows = []
    for label in range(len(images.class_names)):
        of_class = (images.labels == label).nonzero()[:, 0]
        rows.append(of_class[torch.randperm(len(of_class), generator=generator)[:per_class]])
    return images.select(torch.cat(rows))


def plant(
    images: ImageSet, wrong: float, twice: float, generator: torch.Generator
) -> tuple[ImageSet, torch.Tensor, torch.Tensor]:
    """Return the images with wrong labels, copies at the end; which rows are wrong; which were copied."""
    count, classes = len(images), len(images.class_names)
    flipped = torch.randperm(count, generator=generator)[: round(wrong * count)]
    labels = images.labels.clone()
    labels[flipped] = (
        labels[flipped] + torch.randint(1, classes, (len(flipped),), generator=generator)
    ) % classes
    copied = torch.randperm(count, generator=generator)[: round(twice * count)]
    pixels = images.images[:]
    copies = (pixels[copied].flip(3).roll(2, dims=3).float() * 1.15).clamp(0, 255).to(torch.uint8)
    return (
        ImageSet(torch.cat([pixels, copies]), torch.cat([labels, labels[copied]]), images.class_names),
        flipped,
        copied,
    )


def main() -> None:
    """Plant, review, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-class", type=int, default=200)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    generator = torch.Generator().manual_seed(args.seed)
    parts = {part: load_images("cifar10", split=part, size=32, channels=3) for part in ("train", "test")}
    recipe = load_recipe("photos", {"image_size": args.image_size})
    model = fit(draw(parts["train"], 60, generator), recipe)
    images, flipped, copied = plant(draw(parts["test"], args.per_class, generator), 0.02, 0.01, generator)
    found = review_images(model, [replace(images, sources=())], ["test"])
    wrong = {c.first for c in found.concerns if c.kind == MISLABELLED}
    first_copy = len(images) - len(copied)
    is_wrong = set(flipped.tolist()) | {
        first_copy + i for i, row in enumerate(copied.tolist()) if row in set(flipped.tolist())
    }
    pairs = {(c.first, c.second) for c in found.concerns if c.kind == DUPLICATE}
    planted = {(row, first_copy + i) for i, row in enumerate(copied.tolist())}
    for what, hits, there in (("wrong labels", wrong, is_wrong), ("duplicates", pairs, planted)):
        right = len(hits & there)  # type: ignore[operator]
        shares = f"precision {100 * right / max(1, len(hits)):.0f} %, recall {100 * right / len(there):.0f} %"
        print(f"{what}: {len(there)} planted among {len(images)} images, {len(hits)} found: {shares}")


if __name__ == "__main__":
    main()
