"""Which recipe buys the most AUROC in so many minutes: candidates train equally long, and are compared.

python benchmarks/search_recipe.py benchmarks/candidates/cifar10.yaml --minutes 5 --out search/cifar10

A file of candidates names a protocol, a recipe, and under each name the fields that differ. No test image is
looked at, and no published trial: the known classes are others than in any trial, and a tenth of the training
images of every class is held out to judge by. Stopped, the same command goes on. Candidates are trained one
after the other; for two at a time give it twice, with --part 1/2 and --part 2/2 and OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from gradmix.bench.quality import Contestant, bench_quality
from gradmix.data import OpenSetData, custom_split, draw_held_out, get_split, load_images, names_of
from gradmix.training import Recipe, load_recipe

HELD_OUT = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("candidates", type=Path)
    parser.add_argument("--minutes", type=float, required=True, help="of training, for each candidate")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every N-th candidate, from the I-th on")
    args = parser.parse_args()
    content: dict[str, Any] = yaml.safe_load(args.candidates.read_text(encoding="utf-8"))
    part, parts = map(int, args.part.split("/"))
    chosen = list(content["candidates"].items())[part - 1 :: parts]
    recipe = load_recipe(content["recipe"])
    contestants = tuple(Contestant(name, fields or {}) for name, fields in chosen)
    data = validation_data(content["protocol"], recipe)
    curves = bench_quality(data, recipe, args.minutes, args.out / f"part{part}of{parts}", 1, contestants)
    table = Table("candidate", "minutes", "steps", "AUROC", "accuracy", box=None)
    for curve in sorted(curves, key=lambda curve: -curve.points[-1].auroc):
        last = curve.points[-1]
        percent = (f"{100 * value:.2f}" for value in (last.auroc, last.accuracy))
        table.add_row(curve.contestant, f"{last.minutes:.1f}", str(last.steps), *percent)
    Console().print(table)


def validation_data(protocol: str, recipe: Recipe) -> OpenSetData:
    """Held-out training images; as many known classes as in the protocol, but not those of any trial."""
    trials = [get_split(protocol, trial) for trial in range(5)]
    taken = {frozenset(trial.known) for trial in trials}
    source, n_known = trials[0].known_source, len(trials[0].known)
    views = recipe.views
    images = load_images(source, split="train", size=views.image_size, channels=views.channels)
    names = images.class_names
    drawn = (custom_split(source, names, n_known=n_known, seed=seed) for seed in range(1000))
    split = next(s for s in drawn if frozenset(names.index(str(c)) for c in s.known) not in taken)
    held_out = draw_held_out(images.labels, HELD_OUT, seed=0)
    known, unknown = ([names.index(str(c)) for c in classes] for classes in (split.known, split.unknown))
    rest, judged = images.select(~held_out), images.select(held_out)
    strangers = judged.only(unknown)
    return OpenSetData(
        train=rest.only(known),
        test_known=judged.only(known),
        test_unknown=strangers.only(range(len(unknown)), as_unknown=True),
        split=split,
        unknown_names=names_of(strangers),
    )


if __name__ == "__main__":
    main()
