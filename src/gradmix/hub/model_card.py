"""Write the model card, the README.md of a model on the Hub: what it knows, its recipe, metrics and usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from .. import __version__
from ..models import HubTower
from ..models.backbone import Backbone
from ..recognition import Recognizer

_MAX_NAMES = 100
_METRICS = {  # of evaluation.json: (the Hub's name, the name in the card)
    "auroc": ("roc_auc", "AUROC"),
    "oscr": ("oscr", "OSCR (= OpenAUC)"),
    "closed_set_accuracy": ("accuracy", "closed-set accuracy"),
    "known_accepted": ("known_accepted", "known images accepted"),
    "unknown_rejected": ("unknown_rejected", "unknown images rejected"),
}
_FIELDS = ("method", "encoder", "image_size", "channels", "feature_dim", "epochs", "batch_size", "seed", "k")
_TASK = "image-classification"


def make_model_card(recognizer: Recognizer, repo: str, evaluation: Mapping[str, Any] | None = None) -> str:
    """Return the card as Markdown with the Hub's header; the owner chooses the license."""
    names = [_escape(name) for name in recognizer.class_names]
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    recipe = {**recognizer.recipe, "encoder": recognizer.spec.encoder}
    fields = "\n".join(f"| {name} | {_escape(str(recipe[name]))} |" for name in _FIELDS if name in recipe)
    encoder = recognizer.network.encoder
    extras = "hub,transformers" if isinstance(encoder, HubTower) else "hub"
    option, argument, note = _describe_backbone(encoder)
    return f"""---
{_make_header(repo, evaluation)}
---
# {repo.split("/")[-1]}
An image classifier that knows {len(names)} classes and calls everything else unknown, made with gradmix
{__version__}.

## Classes
{", ".join(names[:_MAX_NAMES])}{more}

## Use
```
pip install "gradmix[{extras}]"
gradmix predict hf://{repo} photos/{option}
```
```python
from gradmix import OpenSetClassifier

OpenSetClassifier.load("hf://{repo}"{argument}).predict("photos/")
```
`hf://{repo}@REVISION` pins a commit or a tag. The file is `model.safetensors`: tensors and JSON,
nothing in it is executed.{note}

## How it was made
| field | value |
|---|---|
{fields}

All fields are in `recipe.yaml`. {_describe_threshold(recognizer)}
{_describe_metrics(evaluation)}"""


def _describe_backbone(encoder: nn.Module) -> tuple[str, str, str]:
    """Return the option and the argument that give a network of the owner's own, and a note on it."""
    if not isinstance(encoder, Backbone):
        return "", "", ""
    file = f"FILE.py:{encoder.origin.get('function', 'FUNCTION')}"
    note = " The code of its network is not here: ask the owner for the file."
    return f" --backbone {file}", f', backbone="{file}"', note


def _make_header(repo: str, evaluation: Mapping[str, Any] | None) -> str:
    """Return the YAML that the Hub reads; measured values become its ``model-index``."""
    from huggingface_hub import EvalResult, ModelCardData

    results = []
    if evaluation:
        test = _test_images(evaluation)
        results = [
            EvalResult(
                task_type=_TASK,
                dataset_type=test.split(",")[0] if "split" in evaluation else "private",
                dataset_name=test,
                metric_type=_METRICS[key][0],
                metric_name=_METRICS[key][1],
                metric_value=value,
            )
            for key, value in _percentages(evaluation).items()
        ]
    data = ModelCardData(
        library_name="gradmix",
        pipeline_tag=_TASK,
        tags=["open-set-recognition", _TASK],
        model_name=repo.split("/")[-1] if results else None,  # the Hub reads it with results only
        eval_results=results or None,
    )
    return str(data.to_yaml()).strip()


def _describe_threshold(recognizer: Recognizer) -> str:
    t = recognizer.threshold
    if not t.guaranteed:
        return "Too few images were there to set a threshold: it rejects nothing."
    rate = f"{100 * t.false_reject:g} %"
    if t.held_out:
        return (
            f"At most {rate} of known images are rejected on average (threshold from {t.n} held-out images)."
        )
    return f"The threshold aims at {rate} of known images rejected; it was set with training images."


def _describe_metrics(evaluation: Mapping[str, Any] | None) -> str:
    if not evaluation:
        return ""
    rows = [f"| {_METRICS[key][1]} | {value:.1f} |" for key, value in _percentages(evaluation).items()]
    return "\n".join(
        [
            "",
            "## Measured",
            f"On {_escape(_test_images(evaluation))}: {evaluation.get('known test images')} "
            f"known and {evaluation.get('unknown test images')} unknown images, per cent.",
            "",
            "| metric | value |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def _test_images(evaluation: Mapping[str, Any]) -> str:
    """Return the name of a public protocol; the paths of the owner's own folders are not published."""
    return str(evaluation.get("test")) if "split" in evaluation else "images of the owner's"


def _percentages(evaluation: Mapping[str, Any]) -> dict[str, float]:
    metrics = next(iter(evaluation["metrics"].values()))
    return {key: round(100 * metrics[key], 1) for key in _METRICS if key in metrics}


def _escape(text: str) -> str:
    """Escape what Markdown would interpret, and join lines.

    >>> print(_escape("a|b *c*"))
    a\\|b \\*c\\*
    """
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in " ".join(text.split()))
