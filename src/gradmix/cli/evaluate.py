"""Measure how well a model, or a network that somebody else trained, tells known from unknown.

  gradmix evaluate runs/photos photos/                          # photos/test/CLASS, photos/test/unknown
  gradmix evaluate runs/mnist                                   # on the split it was trained for
  gradmix evaluate runs/mnist --protocol mnist --trial 0 --detector all
  gradmix evaluate runs/photos --known test/ --unknown other/   # folders of your own
  gradmix evaluate runs/photos --known test/ --unknown near=a/ --unknown far=b/
  gradmix evaluate runs/cifar+10 --protocol cifar+50 --out runs/cifar+50
  gradmix evaluate --weights net.pth --encoder vgg32 --protocol tinyimagenet --trial 0
  gradmix evaluate runs/mine --backbone mine.py:build --known test/ --unknown other/
  gradmix evaluate --backbone mine.py:build --known test/ --unknown other/ --train train/

RUN is a run's folder, a model saved from Python, or hf://owner/name. Of FOLDER its test/ is taken, or all of
it if it has no parts: folders named as a class of the model are known, all others unknown. Prints how many
known images are accepted and unknown ones rejected, then a table (known = positive, per cent), and writes
evaluation.json and report.html into the run, or --out.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, choose
from . import read_backbone
from .evaluated_model import EvaluatedModel, open_model
from .evaluation_images import EvaluationImages, check_overlap
from .given_network import (
    RESULTS,
    add_network_arguments,
    default_folder,
    is_given,
    open_network,
    print_notes,
    refuse_network_options,
)
from .run_images import load_images_of_run

if TYPE_CHECKING:
    from ..evaluation import OpenSetResult
    from ..recognition import Recognizer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN", help="a run's folder, or a model")
    parser.add_argument("source", nargs="?", metavar="FOLDER", help="class folders to test on, known or not")
    parser.add_argument("--protocol", help="evaluate on this protocol instead of the run's own split")
    parser.add_argument("--trial", type=int, help="… and this trial of it (default 0)")
    parser.add_argument("--family", help="… in this family of splits (default arpl_2020)")
    parser.add_argument("--known", metavar="DIR", help="folder of class folders, named as in training")
    parser.add_argument(
        "--unknown",
        metavar="[NAME=]DIR",
        action="append",
        help="folder of images of other classes; given several times: one column each, and their mean",
    )
    parser.add_argument(
        "--detector",
        "--score",
        dest="detector",
        default="all",
        help="some of knn, knn:sum (another normalisation), nno, msp, mls, energy, openmax, vim, …, and sums "
        "of them (knn+mls), with commas; or all that the model can compute (default)",
    )
    parser.add_argument(
        "--false-reject", type=float, metavar="RATE", help="at another rate of rejected known images"
    )
    parser.add_argument(
        "--full-spectrum",
        action="store_true",
        help="known images under the 15 common corruptions count as known, too",
    )
    parser.add_argument("--severity", type=int, metavar="1-5", help="… of this severity (default 3)")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"folder of the results (default: the run's; {RESULTS}/NAME here for --weights and --backbone)",
    )
    parser.add_argument(
        "--skip-missing", action="store_true", help="leave out the protocol's unknown sets that are not there"
    )
    parser.add_argument("--data-root", metavar="DIR", help="where data sets are (default: $GRADMIX_DATA)")
    parser.add_argument("--no-cache", action="store_true", help="run the network though its answers are kept")
    add_network_arguments(parser)


@dataclass(frozen=True, eq=False)
class _Evaluation:
    """What was found, by which model, on which images, and what to write about it."""

    result: OpenSetResult
    recognizer: Recognizer
    images: EvaluationImages
    about: dict[str, Any]
    history: Sequence[Mapping[str, float]] = ()
    answers: str = ""  # in one line; of a network without a threshold there are none

    @property
    def full_spectrum(self) -> bool:
        """Whether corrupted images count as known."""
        return len(self.result.known.score) > len(self.images.known)


def run(args: argparse.Namespace) -> int:
    from ..evaluation import FPR_NOTE
    from .results import print_metrics

    severity = _read_severity(args)
    if is_given(args):
        if args.false_reject is not None:
            raise UserError("--false-reject is of a model with a threshold: give RUN, a run's folder or file")
        out = args.out or default_folder(args)
        done = _evaluate_network(args, out, severity)
    else:
        if args.run is None:
            raise UserError(
                "what to evaluate? give a run's folder, or --weights FILE or --backbone FILE.py:FUNCTION"
            )
        refuse_network_options(args)
        model = open_model(args.run, read_backbone(args))
        if args.false_reject is not None:
            model = _change_rate(model, args.false_reject)
        out = args.out or model.results
        images = load_images_of_run(args, model)
        if not any(len(found) for found in images.unknown_sets):
            return _print_known(model, images)
        done = _evaluate_run(args, model, images, out, severity)
    if done.answers:
        print(done.answers, end="\n\n")
    print_metrics(done.result)
    print(FPR_NOTE, file=sys.stderr)
    _write_results(done, out)
    return 0


def _change_rate(model: EvaluatedModel, false_reject: float) -> EvaluatedModel:
    """Return the model at another rate, and say so if nothing can be rejected at it."""

    recognizer = model.recognizer.at_rate(false_reject)
    if note := recognizer.threshold.describe_limit():
        print(f"note: {note}", file=sys.stderr)
    return replace(model, recognizer=recognizer)


def _evaluate_run(
    args: argparse.Namespace,
    model: EvaluatedModel,
    images: EvaluationImages,
    out: Path,
    severity: int | None,
) -> _Evaluation:
    from ..evaluation import applicable_detectors, count_answers, evaluate_open_set
    from .sources import load_trained_images

    recognizer, facts = model.recognizer, model.facts
    check_overlap(images, of_ones_own=bool(args.known or args.source))
    # Called only for scores that learn from more than the model file holds.
    train = None
    if model.has_run:
        train = functools.cache(lambda: load_trained_images(facts, args.run, args.data_root, recognizer))
    named = args.detector.split(",")
    detectors = applicable_detectors(recognizer, train) if args.detector == "all" else named
    with _make_folder(out):
        result = evaluate_open_set(
            recognizer,
            images.known,
            images.unknown,
            train,
            detectors,
            cache=not args.no_cache,
            severity=severity,
            groups=images.groups,
        )
    answers = str(count_answers(result))
    about = {
        **images.facts,
        "answers": answers,
        "command": " ".join(["gradmix", *sys.argv[1:]]),
        "trained by": facts.get("command"),
        "recipe": dict(recognizer.recipe),
        "seed": recognizer.recipe.get("seed"),
        "minutes of training": facts.get("minutes"),
        "versions": facts.get("versions"),
        **_count_images(images, severity),
    }
    if not model.has_run:
        about = {name: value for name, value in about.items() if value is not None}
    return _Evaluation(result, recognizer, images, about, model.history, answers)


def _print_known(model: EvaluatedModel, images: EvaluationImages) -> int:
    """Print what can be said without unknown images; nothing is written."""
    from ..evaluation.answers import count_known

    decision = model.recognizer.decision
    outputs = model.recognizer.outputs(images.known, "features of the known test images", cache=True)
    scores, threshold = decision.margins(outputs)
    print(count_known(scores, images.known.labels, threshold))
    print(
        f"note: {images.facts['test']} has no unknown images, so nothing else can be said, and nothing was "
        "written; put some into a folder unknown/ in it, or give --unknown DIR",
        file=sys.stderr,
    )
    return 0


def _evaluate_network(args: argparse.Namespace, out: Path, severity: int | None) -> _Evaluation:
    from ..detection import detector_names
    from ..evaluation import count_answers, has_threshold
    from ..evaluation.network import evaluate_network

    detectors = () if args.detector == "all" else tuple(args.detector.split(","))
    for name in detectors:
        choose("detector", name, detector_names())  # now, not after the images
    given = open_network(args)
    images = given.images
    check_overlap(images, of_ones_own=bool(args.known))
    with _make_folder(out):
        found = evaluate_network(
            given.network,
            images.known,
            images.unknown,
            train=images.train,
            normalizer=given.normalizer,
            detectors=detectors,
            cache=not args.no_cache,
            severity=severity,
            groups=images.groups,
        )
    print_notes(args, given, found)
    about = {
        **images.facts,
        "command": " ".join(["gradmix", *sys.argv[1:]]),
        **given.facts,
        **_count_images(images, severity),
    }
    result, recognizer = found.result, found.recognizer
    answers = ""
    if has_threshold(recognizer):
        answers = about["answers"] = str(count_answers(result))
    else:
        result, recognizer = _draw_threshold(result, recognizer)
        about["threshold"] = "none; in the report, where 95 % of the known test images are accepted"
    return _Evaluation(result, recognizer, images, about, answers=answers)


def _draw_threshold(result: OpenSetResult, recognizer: Recognizer) -> tuple[OpenSetResult, Recognizer]:
    """Give the report a threshold to draw, where the network came without one; no metric depends on it."""
    from ..evaluation import threshold_at_known

    value = threshold_at_known(result.known.score.numpy())
    return (
        replace(result, threshold=value),
        recognizer.with_threshold(replace(recognizer.threshold, value=value)),
    )


def _read_severity(args: argparse.Namespace) -> int | None:
    """Return the severity of the corruptions, or None if only clean images are known."""
    if not args.full_spectrum:
        if args.severity is not None:
            raise UserError("--severity is of the corruptions: give --full-spectrum too")
        return None
    from ..evaluation.full_spectrum import SEVERITY, check_severity

    return check_severity(SEVERITY if args.severity is None else args.severity)


@contextmanager
def _make_folder(out: Path) -> Iterator[None]:
    """Make the folder of the results before the work, so that a mistake shows; take it back on an error."""
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    out.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in made:
            if not any(folder.iterdir()):
                folder.rmdir()
        raise


def _count_images(images: EvaluationImages, severity: int | None) -> dict[str, Any]:
    unknown = images.unknown
    counts: dict[str, Any] = {
        "known test images": len(images.known),
        "unknown test images": {name: len(found) for name, found in unknown.items()}
        if isinstance(unknown, Mapping)
        else len(unknown),
    }
    if severity is not None:
        counts["full spectrum"] = f"clean, and under the 15 corruptions at severity {severity}: all known"
    return counts


def _write_results(done: _Evaluation, out: Path) -> None:
    from ..report import write
    from ..report.evaluation_page import evaluation_page
    from .results import write_json

    images, recognizer = done.images, done.recognizer
    names = images.unknown_names
    if isinstance(images.unknown, Mapping):
        names = tuple(name for name, found in images.unknown.items() for _ in range(len(found)))
    page = evaluation_page(
        done.result,
        recognizer,
        images.known,
        images.unknown_sets,
        done.history,
        title=f"Known or unknown: {images.facts['test']}{', full spectrum' if done.full_spectrum else ''}",
        subtitle=f"{len(recognizer.class_names)} known classes, {len(done.result.unknown.score)} images of "
        "unknown ones",
        details={name: _to_text(value) for name, value in done.about.items()},
        unknown_names=names,
    )
    write_json(out / "evaluation.json", done.result, done.about)
    write(page, out / "report.html")
    print(f"{out / 'evaluation.json'}\n{out / 'report.html'}", file=sys.stderr)


def _to_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return str(value)
