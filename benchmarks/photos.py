"""How well a classifier does that was made from few images: accuracy, rejection, and classes taught later.

    python benchmarks/photos.py [--data tiny-imagenet,cifar10,svhn] [--images 5,20,60] [--recipe photos,small]
    python benchmarks/photos.py --images 60 --against evidence=false --draws 20 --first 100
    python benchmarks/photos.py --data tiny-imagenet --images 60 --far svhn

For every draw: six classes of a data set with so many training images each are given to a recipe, as
`gradmix train` would; a seventh is enrolled afterwards from 5 and from 20 images; all others are unknown.
ImageNet, which the encoder of `photos` was trained on, has the classes of tiny-imagenet and mini-imagenet
(the unknown ones too), most of cifar10's, and none of svhn's.
Measured on up to 50 images of each class that were not used, mean over the draws, per cent:

- right: share of known images whose nearest class is theirs;  AUROC: known against unknown, by the score
- false rejects, rejected: share of known, and of unknown images, that the model calls unknown
- far rejected: share of 300 test images of another data set (``--far``) that the model calls unknown
- 5 taught, 20 taught: share of the seventh class that is accepted under its name after enrolling
- lost: share of known images that were named right before the 20 were enrolled, and are not after it

``--against NAME=VALUE`` makes every model once more, with that field, from the same images; a second row has
the mean of the differences (the first minus the second) and its standard error.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import fmean, pstdev, stdev

import torch

from gradmix import progress
from gradmix.data import ImageSet, load_images
from gradmix.detection import Outputs
from gradmix.evaluation.metrics import auroc
from gradmix.recipe import load_recipe
from gradmix.recognition import Recognizer, fit
from gradmix.report import markdown_table
from gradmix.training.seeds import generator_for

KNOWN, TEST, TAUGHT = 6, 50, (5, 20)
FAR = 300
COLUMNS = (
    *("right", "AUROC", "false rejects", "rejected", "far rejected", "5 taught", "20 taught", "lost"),
    "seconds",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="tiny-imagenet,cifar10,svhn", help="data sets, with commas")
    parser.add_argument("--images", default="5,20,60", help="training images per class")
    parser.add_argument("--recipe", default="photos", help="recipes, with commas")
    parser.add_argument("--draws", type=int, default=3, help="of classes and images (default 3)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="of the first draw (default 0)")
    parser.add_argument("--against", metavar="NAME=VALUE", help="compare with the recipe with this field")
    parser.add_argument("--field", action="append", default=[], metavar="NAME=VALUE", help="over the recipe")
    parser.add_argument("--far", metavar="NAME", help="a data set, none of whose images is of any class")
    parser.add_argument("--data-root", help="where data sets are (default: $GRADMIX_DATA)")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    args = parser.parse_args()
    progress.show()
    fields = dict(field.split("=", 1) for field in args.field)
    far = draw_far(args.far, args.data_root) if args.far else None
    rows, found = [], []
    for data in args.data.split(","):
        images = load_images(data, split="train", data_root=args.data_root)
        for count in map(int, args.images.split(",")):
            for recipe in args.recipe.split(","):
                seeds = range(args.first, args.first + args.draws)
                draws = [measure(images, count, recipe, fields, seed, far) for seed in seeds]
                found.append({"data": data, "images": count, "recipe": recipe, "draws": draws})
                rows.append([data, count, recipe, *(_mean(_column(draws, name)) for name in COLUMNS)])
                if args.against:
                    other = {**fields, **dict([args.against.split("=", 1)])}
                    others = [measure(images, count, recipe, other, seed, far) for seed in seeds]
                    found.append({**found[-1], "recipe": f"{recipe}, {args.against}", "draws": others})
                    differences = (_difference(draws, others, name) for name in COLUMNS)
                    rows.append([data, count, f"minus {args.against}", *differences])
                print(markdown_table(["data", "images", "recipe", *COLUMNS], rows))
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n")


def measure(
    images: ImageSet,
    count: int,
    recipe_name: str,
    fields: dict[str, str],
    seed: int,
    far: ImageSet | None = None,
) -> dict[str, float | None]:
    """Make one model and measure it; None where there are too few images to enroll."""
    generator = generator_for(seed, "photos")
    order = [int(c) for c in torch.randperm(len(images.class_names), generator=generator)]
    of_class = {c: draw_rows(images, c, generator) for c in order}
    order = [c for c in order if len(of_class[c]) >= count + 10]
    known, new, others = order[:KNOWN], order[KNOWN], order[KNOWN + 1 :]
    train = images.select(torch.cat([of_class[c][:count] for c in known])).only(known)
    test = images.select(torch.cat([of_class[c][count:][-TEST:] for c in known])).only(known)
    each = max(1, 300 // len(others))
    unknown = images.select(torch.cat([of_class[c][:each] for c in others]))
    started = time.monotonic()
    model = fit(train, load_recipe(recipe_name, {**fields, "seed": seed}))
    seconds = time.monotonic() - started
    seen = model.outputs(test)  # once: the network is the same after enrolling
    on_known, on_unknown = model.decision.decide(seen), model.predict(unknown)
    names = on_known.nearest == test.labels
    rows: dict[str, float | None] = {
        "right": _percent(names),
        "AUROC": 100 * auroc(on_known.score, on_unknown.score),
        "false rejects": _percent(~on_known.accepted),
        "rejected": _percent(~on_unknown.accepted),
        "far rejected": None if far is None else _percent(~model.predict(far).accepted),
        "seconds": seconds,
        "lost": None,
    }
    for taught in TAUGHT:
        rows[f"{taught} taught"], lost = teach(model, images, of_class[new], taught, seen)
        rows["lost"] = lost
    return rows


def teach(
    model: Recognizer, images: ImageSet, rows: torch.Tensor, count: int, test: Outputs
) -> tuple[float | None, float | None]:
    """Return the share of a class that is named after enrolling ``count``, and what was lost by it."""
    if len(rows) < count + 10 or (model.network.num_classes and model.decision.detector.name != "knn"):
        return None, None
    taught = model.enroll("taught", images.select(rows[:count]))
    label = taught.class_names.index("taught")
    named = taught.predict(images.select(rows[count:][-TEST:])).label == label
    before, after = (m.decision.decide(test).label == test.labels for m in (model, taught))
    return _percent(named), _percent(before & ~after)


def draw_far(name: str, data_root: str | None) -> ImageSet:
    """Return the test images of a data set that all draws are shown, the same ones."""
    images = load_images(name, split="test", data_root=data_root)
    order = torch.randperm(len(images), generator=generator_for(0, "photos"))
    return images.select(order[:FAR].sort().values)


def draw_rows(images: ImageSet, label: int, generator: torch.Generator) -> torch.Tensor:
    """Return the rows of a class in a drawn order."""
    rows = (images.labels == label).nonzero()[:, 0]
    return rows[torch.randperm(len(rows), generator=generator)]


def _percent(which: torch.Tensor) -> float:
    return 100 * float(which.double().mean())


def _column(draws: list[dict[str, float | None]], name: str) -> list[float]:
    """Return what was measured of the draws, without those that had too few images."""
    return [value for draw in draws if (value := draw[name]) is not None]


def _difference(
    draws: list[dict[str, float | None]], others: list[dict[str, float | None]], name: str
) -> str:
    """Return the mean of paired differences and its standard error."""
    pairs = list(zip(_column(draws, name), _column(others, name), strict=True))
    differences = [a - b for a, b in pairs]
    if len(differences) < 2:
        return "–"
    return f"{fmean(differences):+.1f} ± {stdev(differences) / len(differences) ** 0.5:.1f}"


def _mean(values: list[float]) -> str:
    return f"{fmean(values):.1f} ± {pstdev(values):.1f}" if values else "–"


if __name__ == "__main__":
    main()
