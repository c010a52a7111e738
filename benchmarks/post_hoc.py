"""Every post-hoc score on a published TinyImageNet classifier: AUROC of known against unknown images.

python benchmarks/post_hoc.py vaze_tinyimagenet_0.pth --trial 0 --temperature 0.1

The network runs once over each set. Scores that learn do so from the training images of known classes that
are on disk; where there are none, only those that learn nothing are printed. No image is tuned on.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from gradmix.data import ImageSet, Split, get_split, load_images
from gradmix.detection import DETECTORS, HeadWeights, Outputs, make_detector
from gradmix.errors import UserError
from gradmix.evaluation import open_set_metrics
from gradmix.recipe import load_recipe
from gradmix.recognition import cached_extract
from gradmix.training.session import build_network
from gradmix.views import Normalizer

COLUMNS = ("closed_set_accuracy", "auroc", "tnr_at_tpr95", "oscr")
SUMS = ("knn:none", "knn+mls")


def load_known(split: Split, part: str, data_root: str | None) -> ImageSet | None:
    """Return the images of the known classes, labelled by their place in the split; None without any."""
    try:
        images = load_images("tiny-imagenet", split=part, data_root=data_root)
    except UserError:
        return None
    found = images.only([int(c) for c in split.known])
    return found if min(found.counts().values()) else None


def divide(outputs: Outputs, temperature: float) -> Outputs:
    """Return the outputs of the network whose head is W/T, b/T."""
    assert outputs.logits is not None
    assert outputs.head is not None
    head = HeadWeights(outputs.head.weight / temperature, outputs.head.bias / temperature)
    return replace(outputs, logits=outputs.logits / temperature, head=head)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", help="file of a vgg32 network with its classifier")
    parser.add_argument("--trial", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=1.0, help="divide the logits by this")
    parser.add_argument("--data-root", help="where data sets are (default: $GRADMIX_DATA)")
    args = parser.parse_args()
    split = get_split("tinyimagenet", args.trial)
    recipe = load_recipe("paper/ce-plus-tinyimagenet", {"init": args.weights, "init_head": True})
    network = build_network(recipe, len(split.known)).eval()
    images = load_images("tiny-imagenet", split="val", data_root=args.data_root)
    normalizer = Normalizer.fit(images.images, recipe.views.normalize)
    sets = {
        "known": images.only([int(c) for c in split.known]),
        "unknown": images.only([int(c) for c in split.unknown], as_unknown=True),
        "train": load_known(split, "train", args.data_root),
    }
    outputs = {
        name: divide(cached_extract(network, normalizer, part), args.temperature)
        for name, part in sets.items()
        if part is not None
    }
    print(", ".join(f"{len(o.labels)} {name}" for name, o in outputs.items()), file=sys.stderr)
    rows = []
    for name in (*DETECTORS, *SUMS):
        detector = make_detector(name)
        source = outputs.get("train")
        if not detector.needs <= outputs["known"].parts or detector.needs_held_out or name == "osrci":
            continue
        if detector.learns and source is None:
            continue
        detector.fit(source or outputs["known"], len(split.known))  # the latter: nothing is learned
        scores = detector.score(outputs["known"]), detector.score(outputs["unknown"])
        rows.append((name, open_set_metrics(scores[0], outputs["known"].labels, scores[1])))
    for name, metrics in sorted(rows, key=lambda row: -row[1]["auroc"]):
        print(f"{name:14}", *(f"{100 * metrics[column]:6.2f}" for column in COLUMNS))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"error: {error}") from error
