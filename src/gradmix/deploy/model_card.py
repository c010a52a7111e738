"""The README.md of a model on the Hub: what it knows, how it was made, how well it does, how to use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import __version__
from ..recognition import Recognizer

_MOST_NAMES = 100
_METRICS = {
    "auroc": "AUROC",
    "oscr": "OSCR",
    "closed_set_accuracy": "closed-set accuracy",
    "known_accepted": "known images accepted",
    "unknown_rejected": "unknown images rejected",
}
_FIELDS = ("method", "encoder", "image_size", "channels", "feature_dim", "epochs", "batch_size", "seed", "k")


def model_card(recognizer: Recognizer, repo: str, evaluation: Mapping[str, Any] | None = None) -> str:
    """Markdown with the Hub's header; the licence is for the owner to choose."""
    names = [_plain(name) for name in recognizer.class_names]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    recipe = recognizer.recipe.flat()
    fields = "\n".join(f"| {name} | {_plain(str(recipe[name]))} |" for name in _FIELDS if name in recipe)
    return f"""---
library_name: gradmix
pipeline_tag: image-classification
tags:
- open-set-recognition
- image-classification
---
# {repo.split("/")[-1]}
An image classifier that knows {len(names)} classes and calls everything else unknown, made with gradmix
{__version__}.

## Classes
{", ".join(names[:_MOST_NAMES])}{more}

## Use
```
pip install "gradmix[hub]"
gradmix predict hf://{repo} photos/
```
```python
from gradmix import OpenSetClassifier

OpenSetClassifier.load("hf://{repo}").predict("photos/")
```
`hf://{repo}@REVISION` pins a commit or a tag. The file is `model.safetensors`: tensors and JSON,
nothing in it is executed.

## How it was made
| field | value |
|---|---|
{fields}

All fields are in `recipe.yaml`. {_promise(recognizer)}
{_measured(evaluation)}"""


def _promise(recognizer: Recognizer) -> str:
    t = recognizer.threshold
    if not t.guaranteed:
        return "Too few images were there to set a threshold: it rejects nothing."
    rate = f"{100 * t.false_reject:g} %"
    if t.held_out:
        return (
            f"At most {rate} of known images are rejected on average (threshold from {t.n} held-out images)."
        )
    return f"The threshold aims at {rate} of known images rejected; it was set with training images."


def _measured(evaluation: Mapping[str, Any] | None) -> str:
    if not evaluation:
        return ""
    # Without a split these were folders of the owner's, whose paths are nobody else's business.
    where = _plain(str(evaluation.get("test"))) if "split" in evaluation else "images of the owner's"
    metrics = next(iter(evaluation["metrics"].values()))
    rows = [f"| {title} | {100 * metrics[key]:.1f} |" for key, title in _METRICS.items() if key in metrics]
    return "\n".join(
        [
            "",
            "## Measured",
            f"On {where}: {evaluation.get('known test images')} "
            f"known and {evaluation.get('unknown test images')} unknown images, per cent.",
            "",
            "| metric | value |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def _plain(text: str) -> str:
    """Names may hold what Markdown would take for its own.

    >>> print(_plain("a|b *c*"))
    a\\|b \\*c\\*
    """
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in " ".join(text.split()))
