"""Measure how well a run tells known from unknown.

  gradmix evaluate runs/mnist                                   # on the split it was trained for
  gradmix evaluate runs/mnist --protocol mnist --trial 0 --detector all
  gradmix evaluate runs/photos --known test/ --unknown other/   # folders of your own
  gradmix evaluate runs/cifar+10 --protocol cifar+50 --out runs/cifar+50

Prints a table (known = positive, per cent) and writes evaluation.json and report.html into the run, or --out.
"""

from __future__ import annotations

import argparse
import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError

if TYPE_CHECKING:
    from ..data import ImageSet
    from ..recognition import Recognizer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--protocol", help="evaluate on this protocol instead of the run's own split")
    parser.add_argument("--trial", type=int, help="… and this trial of it (default 0)")
    parser.add_argument("--family", help="… in this family of splits (default arpl_2020)")
    parser.add_argument("--known", metavar="DIR", help="folder of class folders, named as in training")
    parser.add_argument("--unknown", metavar="DIR", help="folder of images of other classes")
    parser.add_argument(
        "--detector",
        "--score",
        dest="detector",
        default="all",
        help="some of knn, knn:sum (another normalisation), nno, msp, mls, energy, openmax, vim, …, and sums "
        "of them (knn+mls), with commas; or all that the model can compute (default)",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the results (default: the run's)")
    parser.add_argument("--data-root", metavar="DIR", help="where data sets are (default: $GRADMIX_DATA)")
    parser.add_argument("--no-cache", action="store_true", help="run the network though its answers are kept")


def run(args: argparse.Namespace) -> int:
    from ..evaluation import applicable_detectors, evaluate_open_set
    from ..recognition import load
    from ..report import write
    from ..report.evaluation_page import evaluation_page
    from ..training import RunFolder
    from .results import print_metrics, write_json
    from .sources import load_trained_images

    folder = RunFolder.open(args.run)
    recognizer = load(args.run)
    test, facts = _load_test_images(args, recognizer, folder.facts())
    all_of_them = args.detector == "all"
    # Called only for scores that learn from more than the model file holds.
    train = functools.cache(lambda: load_trained_images(folder.facts(), args.run, args.data_root, recognizer))
    detectors = applicable_detectors(recognizer, train) if all_of_them else args.detector.split(",")
    out: Path = args.out or args.run
    out.mkdir(parents=True, exist_ok=True)  # now: a folder that cannot be made shows before the work
    result = evaluate_open_set(
        recognizer, test.known, test.unknown, train, detectors, cache=not args.no_cache
    )
    print_metrics(result)

    run_facts = folder.facts()
    about = {
        **facts,
        "command": " ".join(["gradmix", *sys.argv[1:]]),
        "trained by": run_facts.get("command"),
        "recipe": dict(recognizer.recipe),
        "seed": recognizer.recipe.get("seed"),
        "minutes of training": run_facts.get("minutes"),
        "versions": run_facts.get("versions"),
        "known test images": len(test.known),
        "unknown test images": len(test.unknown),
    }
    write_json(out / "evaluation.json", result, about)
    page = evaluation_page(
        result,
        recognizer,
        test.known,
        test.unknown,
        folder.history(),
        title=f"Known or unknown: {facts['test']}",
        subtitle=f"{len(recognizer.class_names)} known classes, {len(test.unknown)} images of unknown ones",
        details={name: _to_text(value) for name, value in about.items()},
        unknown_names=test.unknown_names,
    )
    write(page, out / "report.html")
    print(f"{out / 'evaluation.json'}\n{out / 'report.html'}", file=sys.stderr)
    return 0


@dataclass(frozen=True)
class _TestImages:
    known: ImageSet
    unknown: ImageSet
    unknown_names: tuple[str, ...] = ()


def _load_test_images(
    args: argparse.Namespace, recognizer: Recognizer, run_facts: dict[str, Any]
) -> tuple[_TestImages, dict[str, Any]]:
    """Return the images, and what to write about them."""
    from ..data import load_image_files, load_images
    from .sources import (
        get_chosen_split,
        load_open_set,
        read_request,
        read_split,
        refuse_without_protocol,
        skips_bad,
    )

    wanted = recognizer.image_format
    if not args.protocol:
        refuse_without_protocol(args)
    if args.known or args.unknown:
        if args.protocol:
            raise UserError("give --protocol, or --known and --unknown, not both")
        if not (args.known and args.unknown):
            raise UserError("--known and --unknown go together: a folder of each")
        known = load_images(args.known, split="all", size=wanted.size, channels=wanted.channels)
        foreign = [name for name in known.class_names if name not in recognizer.class_names]
        if foreign:
            raise UserError(
                f"{args.known} has a class '{foreign[0]}' that the model does not know "
                f"(it knows: {', '.join(recognizer.class_names)})"
            )
        labels = [
            known.class_names.index(n) if n in known.class_names else -1 for n in recognizer.class_names
        ]
        if -1 in labels:
            missing = recognizer.class_names[labels.index(-1)]
            raise UserError(f"{args.known} has no folder for the known class '{missing}'")
        unknown, _ = load_image_files([Path(args.unknown)], size=wanted.size, channels=wanted.channels)
        return _TestImages(known.only(labels), unknown), {"test": f"{args.known} and {args.unknown}"}
    skip_bad = False
    if args.protocol:
        split = get_chosen_split(args)
    else:
        request = read_request(run_facts, args.run)
        if "split" not in request:
            raise UserError(
                f"{args.run} knows all classes of {request['source']}; nothing there is unknown: "
                "give --known DIR --unknown DIR"
            )
        split, skip_bad = read_split(request), skips_bad(request)
    data = load_open_set(split, args.data_root, wanted, skip_bad)
    if data.train.class_names != recognizer.class_names:
        raise UserError(
            f"{split.protocol} trial {split.trial} has other known classes than the run "
            f"({', '.join(data.train.class_names)} against {', '.join(recognizer.class_names)})"
        )
    facts = {
        "test": f"{split.protocol}, trial {split.trial} ({split.family})",
        "split": split.hash,
        "openness": round(split.openness, 4),
    }
    return _TestImages(data.test_known, data.test_unknown, data.unknown_names), facts


def _to_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return str(value)
