"""How well classes are learned from a few images without training, on real data.

    python benchmarks/enroll.py RUN [--data cifar10] [--images 5,20] [--draws 5]

RUN was trained on six classes of the data set (gradmix train --protocol cifar10 --recipe cpu/cifar10 …). The
other four are enrolled from a few training images each, drawn anew for every draw. Measured on the official
test images: 100 of each known class set the threshold and are left out of the rest. Printed as a table:
mean ± standard deviation over the draws, per cent.

- 10-way: share of all test images whose nearest class is the right one, nothing rejected. Before enrolling,
  four classes of ten cannot be named, so 60 is the most that is possible.
- old, new: the same for the six trained and the four enrolled classes.
- named: share of all test images that are accepted under their right name at the model's own threshold.
- new rejected: share of the images of the four classes that are called unknown.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch

from gradmix import progress
from gradmix.data import ImageSet, load_images, rank_in_class
from gradmix.detection import Outputs
from gradmix.recognition import Recognizer, load
from gradmix.recognition.calibration import set_decision
from gradmix.training.seeds import generator_for

HELD_OUT = 100  # test images of each known class that set the threshold
COLUMNS = ("10-way", "old", "new", "named", "new rejected")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--images", default="5,20", help="images a class (default 5,20)")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--data", default="cifar10", help="cifar10 (default), mnist or svhn")
    parser.add_argument("--data-root", help="where data sets are (default: $GRADMIX_DATA)")
    parser.add_argument("--no-bias", action="store_true", help="as if enrolled classes were like others")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    args = parser.parse_args()
    progress.show()
    recognizer = load(args.run)
    wanted = recognizer.image_format
    train, test = (
        load_images(
            args.data, split=split, data_root=args.data_root, size=wanted.size, channels=wanted.channels
        )
        for split in ("train", "test")
    )
    novel = [name for name in test.class_names if name not in recognizer.class_names]
    if len(test.class_names) != 10 or len(novel) != 4:
        raise SystemExit(f"{args.run} does not know six of the ten classes of {args.data}")
    held_out = torch.zeros(len(test), dtype=torch.bool)
    for name in recognizer.class_names:
        held_out |= (test.labels == test.class_names.index(name)) & (rank_in_class(test.labels) < HELD_OUT)
    known = test.select(held_out).only([test.class_names.index(name) for name in recognizer.class_names])
    recognizer = recognizer.recalibrate(images=known)
    test = test.select(~held_out)
    outputs = recognizer.outputs(test, "features of the test images", cache=True)
    rows = {"before": [measured(recognizer, test, outputs, novel)]}
    for count in map(int, args.images.split(",")):
        rows[f"{count} images"] = [
            measured(taught(recognizer, train, novel, count, draw, not args.no_bias), test, outputs, novel)
            for draw in range(args.draws)
        ]
    print(f"| enrolled | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    for name, draws in rows.items():
        print(f"| {name} | {' | '.join(cell([draw[column] for draw in draws]) for column in COLUMNS)} |")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


def taught(
    recognizer: Recognizer, train: ImageSet, novel: list[str], count: int, draw: int, biased: bool
) -> Recognizer:
    """The recognizer after enrolling ``count`` training images of each novel class."""
    generator = generator_for(draw, "enroll", count)
    for name in novel:
        of_class = (train.labels == train.class_names.index(name)).nonzero()[:, 0]
        picked = of_class[torch.randperm(len(of_class), generator=generator)[:count]]
        recognizer = recognizer.enroll(name, train.select(picked))
    if biased:
        return recognizer
    t, held_out, enrolled = recognizer.threshold, recognizer.calibration, recognizer.enrolled_labels
    classes = len(recognizer.class_names)
    plain = set_decision(
        recognizer.index, classes, None, held_out, t.false_reject, enrolled=enrolled, biased=False
    )
    return replace(recognizer, decision=plain)


def measured(recognizer: Recognizer, test: ImageSet, outputs: Outputs, novel: list[str]) -> dict[str, float]:
    """Shares of 1, see the top of this file; -1 stands for a class that the recognizer does not know."""
    names = recognizer.class_names
    place = torch.tensor([names.index(name) if name in names else -1 for name in test.class_names])
    truth = place[test.labels]
    is_new = torch.isin(test.labels, torch.tensor([test.class_names.index(name) for name in novel]))
    scores = recognizer.scores(outputs)
    accepted = recognizer.threshold.accepts(scores.score, scores.label)
    right = scores.label == truth

    def share(of: torch.Tensor) -> float:
        return float(of.double().mean())

    return {
        "10-way": share(right),
        "old": share(right[~is_new]),
        "new": share(right[is_new]),
        "named": share(right & accepted),
        "new rejected": share(~accepted[is_new]),
    }


def cell(values: list[float]) -> str:
    shares = 100 * torch.tensor(values, dtype=torch.float64)
    if len(values) == 1:
        return f"{float(shares[0]):.1f}"
    return f"{float(shares.mean()):.1f} ± {float(shares.std()):.1f}"


if __name__ == "__main__":
    main()
