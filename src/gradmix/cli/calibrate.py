"""Set how many known images a model may call unknown.

  gradmix calibrate runs/photos --false-reject 0.01
  gradmix calibrate runs/photos --false-reject 0.05 --per-class
  gradmix calibrate runs/photos --images new_photos/       # class folders, never used in training
  gradmix calibrate runs/photos --detector knn             # from now on it decides by this score

The threshold comes from known images that were held out of training (--holdout of 'gradmix train'), or from
--images. Of future images like these, at most the given share is then rejected, on average over such draws:
P(rejected | known) <= rate, for any network and any number of images (split conformal prediction).
--per-class promises it for the known images taken for each class, and needs enough of each. From images that
the model was trained on (no hold-out, no --images) nothing follows, and this is said.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from . import add_backbone_arguments, read_backbone

if TYPE_CHECKING:
    from ..data import ImageSet
    from ..recognition import Recognizer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", type=Path, metavar="RUN|MODEL", help="a run folder, or its model.safetensors"
    )
    parser.add_argument("--false-reject", type=float, metavar="RATE", help="default: the rate it has")
    parser.add_argument(
        "--per-class",
        action=argparse.BooleanOptionalAction,
        help="one threshold per class, or one for all (default: as it is)",
    )
    parser.add_argument("--detector", default="", help="let it decide by another score (default: as it does)")
    parser.add_argument("--images", type=Path, metavar="FOLDER", help="class folders of images it never saw")
    parser.add_argument("--skip-bad", action="store_true", help="leave unreadable images out, and count them")
    add_backbone_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from ..recognition import update_model

    if args.skip_bad and not args.images:
        raise UserError("--skip-bad goes with --images FOLDER")

    def change(recognizer: Recognizer) -> Recognizer:
        images = None
        if args.images:
            from ..data import load_images

            images = load_images(
                args.images,
                split="all",
                size=recognizer.image_format.size,
                channels=recognizer.image_format.channels,
                skip_bad=args.skip_bad,
            )
        if args.detector:
            recognizer = _decide_by(args.detector, recognizer, images)
        changed = recognizer.recalibrate(args.false_reject, args.per_class, images)
        t = changed.threshold
        if not t.guaranteed:
            lowest = f"; the lowest rate they allow is {1 / (t.n + 1):.2g}" if t.n else ""
            raise UserError(
                f"{t.n} images cannot bound false rejects by {t.false_reject:g}, {t.needed} would do{lowest}"
                "; give more with --images"
            )
        return changed

    changed = update_model(args.model, change, read_backbone(args))
    for line in _summarize(changed):
        print(line)
    if not changed.threshold.held_out:
        print(
            "note: no images were held out, so these are the training images, which score higher than new "
            "ones: more than the given rate will be rejected. Give --images, or train with --holdout 0.1",
            file=sys.stderr,
        )
    return 0


def _decide_by(name: str, recognizer: Recognizer, images: ImageSet | None) -> Recognizer:
    """Return the model with another score; ``images`` stand in where it has no held-out ones."""
    if images is not None and recognizer.calibration is None:
        recognizer = recognizer.recalibrate(images=images)
    return recognizer.with_detector(name)


def _summarize(changed: Recognizer) -> list[str]:
    """Return lines about what was set, and what follows from it."""
    from ..detection import KNN

    t = changed.threshold
    left_out = ", each left out in turn" if isinstance(changed.decision.detector, KNN) else ""
    kind = "held-out known images" if t.held_out else f"training images{left_out}"
    lines = [f"threshold {t.value:.6g} from {t.n} {kind}"]
    if t.promised and not t.per_class:
        low, high = t.rate_range()
        lines.append(
            f"at most {100 * t.false_reject:g} % of known images rejected on average; "
            f"with these {t.n} images between {100 * low:.2g} and {100 * high:.2g} % (90 % sure)"
        )
    for name, of_class in zip(changed.class_names, t.by_class, strict=False):
        promise = "" if of_class.guaranteed else f" (too few: {t.needed} are needed; nothing promised)"
        lines.append(
            f"  {name}: {of_class.value:.6g} from {of_class.n} images{promise if t.per_class else ''}"
        )
    return lines
