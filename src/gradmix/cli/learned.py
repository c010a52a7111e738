"""The last lines of a training: what was learned, and the command to go on with."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..recognition import Recognizer


# Below this share of right names, training further paid: 42 % of house numbers, but not 84 % of CIFAR10
# (docs/folder.md).
_FAIR = 0.7


def describe_learned(
    recognizer: Recognizer,
    run: Path,
    held_out: str = "held out of training",
    test: str = " --known test/ --unknown other/",
) -> list[str]:
    """Return what a new model does with its held-out images, and what to type next.

    ``held_out`` says what kind of images those are, ``test`` which images evaluate is to be given.
    """
    from ..recognition import summarize_held_out

    found, threshold, classes = summarize_held_out(recognizer), recognizer.threshold, recognizer.class_names
    where = shlex.quote(str(run))
    measure = f"gradmix evaluate {where}{test}"
    if found is None:
        lines = [
            f"learned {len(classes)} classes; no image was held out, so how many it names right is not "
            f"known: {measure}"
        ]
    else:
        lines = [
            f"learned {len(classes)} classes: of {found.images} images {held_out} it takes "
            f"{_share(found.right, found.images)} for their own class (guessing: {100 / len(classes):.1f} %)"
        ]
        if threshold.guaranteed:
            lines.append(
                f"threshold: at most {100 * threshold.false_reject:g} % of known images are to be called "
                f"unknown; of those {found.images} it accepts {_share(found.accepted, found.images)}, "
                f"{_share(found.accepted_right, found.images)} under their right name"
            )
        if _is_published(recognizer) and found.right < _FAIR * found.images:
            lines.append(
                "such images its network, which was trained on photographs, hardly tells apart; from about a "
                "hundred per class on, train it further: --recipe photos-finetune"
            )
        lines.append(f"unknown images: nothing is known yet; measure with: {measure}")
    return [*lines, f"next: gradmix predict {where} new/"]


def _is_published(recognizer: Recognizer) -> bool:
    """Return whether the model is a network from a package, as it was published."""
    return recognizer.recipe.get("method") == "frozen" and recognizer.recipe.get("init") == "pretrained"


def _share(part: int, whole: int) -> str:
    """Return a share of images in per cent.

    >>> _share(57, 60)
    '95.0 %'
    """
    return f"{100 * part / whole:.1f} %"
