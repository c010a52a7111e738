"""What a model file says: a recognizer as tensors and plain values, and back.

The network is described by plain values (:class:`NetworkSpec`) and its weights, the decision by its
detector's name, settings and tensors. So a file opens without the code that trained it; its recipe is there
to be read, not to be run. Format 1 is that of version 0.1, whose models decided by neighbours, whatever
trained them.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from .. import __version__
from ..detection import (
    KNN,
    ClassThreshold,
    Decision,
    EnrolledScores,
    KnownScores,
    Outputs,
    Threshold,
    load_detector,
)
from ..errors import UserError
from ..models import ENCODERS, Body, Network, NetworkSpec
from ..models.backbone import BACKBONE, Backbone, register_backbone
from ..models.user_backbone import UserBackbone, check_origin
from ..views import Normalizer
from .calibration import find_known_scores
from .features import add_head
from .model_checks import check_finite, check_header, limit_parts
from .recognizer import Gallery, Recognizer

FORMAT = 2
_NETWORK, _INDEX, _DETECTOR = "network.", "index.", "detector."
_CALIBRATION, _EXTRA, _GALLERY = "calibration.", "extra.", "gallery."
_KNOWN, _ENROLLED = "known.", "enrolled."  # not in files of earlier versions, which skip them
# Methods that trained the direction of z only; format 1 did not record it.
_UNIT_FEATURES_IN_FORMAT_1 = ("gradmix", "moco", "frozen")

GivenModule = nn.Module | UserBackbone  # the user's own network: itself, or the file that makes it
Values = dict[str, Any]
Tensors = dict[str, Tensor]


def pack(recognizer: Recognizer, notes: Mapping[str, Any] | None = None) -> tuple[Values, Tensors]:
    """Return (plain values, tensors): all there is to a recognizer. ``notes``: whatever JSON can hold."""
    decision, encoder = recognizer.decision, recognizer.network.encoder
    tensors: Tensors = {
        _NETWORK + k: v.detach().cpu().contiguous() for k, v in recognizer.network.state_dict().items()
    }
    tensors |= {_INDEX + k: v.contiguous() for k, v in recognizer.index.state().items()}
    tensors |= {_GALLERY + k: v for k, v in recognizer.gallery.state().items()}
    if not isinstance(decision.detector, KNN):  # neighbours are those of the index, in sums of scores too
        tensors |= {_DETECTOR + k: v.contiguous() for k, v in decision.detector.state().items()}
    if recognizer.calibration is not None:
        tensors |= {
            _CALIBRATION + k: v.contiguous() for k, v in _outputs_state(recognizer.calibration).items()
        }
    if isinstance(decision.known, KnownScores):
        tensors |= {_KNOWN + k: v.contiguous() for k, v in _known_state(decision.known).items()}
    tensors = _unshare(tensors)
    own: dict[str, Any] | None = None
    if isinstance(encoder, Backbone):
        own = {"kind": encoder.kind, "layer": encoder.layer, "before": encoder.before, **encoder.origin}
    return {
        "format": FORMAT,
        "version": __version__,
        "class_names": recognizer.class_names,
        "enrolled": recognizer.enrolled_names,
        "network": recognizer.spec.describe(),
        "backbone": own,
        "normalizer": {"mean": recognizer.normalizer.mean, "std": recognizer.normalizer.std},
        "layers": recognizer.layers,
        "index": recognizer.index.settings(),
        "decision": {
            "detector": decision.detector.name,
            "settings": decision.detector.settings(),
            "class_bias": decision.class_bias,
            "threshold": _describe_threshold(decision.threshold),
        },
        # Without the name of a file on the machine that it was trained on.
        "recipe": {name: value for name, value in recognizer.recipe.items() if name != "init"},
        "notes": dict(notes or {}),
    }, tensors


def unpack(
    about: Values, tensors: Tensors, module: GivenModule | None = None, kept: str = "FILE.py"
) -> tuple[Recognizer, Values]:
    """Return the recognizer and the notes that :func:`pack` was given; of format 1 or 2.

    ``module``: like the one that it was made with, if it was made with one of the user's own, or the file
    that makes it; ``kept``: where that file may be, for errors. Raises KeyError, TypeError, ValueError and
    the like where something is missing or does not fit together.
    """
    if about["format"] == 1:
        about = _upgrade(about)
    spec = NetworkSpec.from_description(_require_code(about["network"], about["backbone"], module, kept))
    check_header(about)
    class_names = tuple(about["class_names"])
    network = _load_network(spec, about["backbone"], module, _strip_prefix(_NETWORK, tensors))
    state = _strip_prefix(_INDEX, tensors)
    check_finite({**dict(network.named_parameters()), **state})
    index = KNN.from_state(state, about["index"])
    if int(state["num_classes"]) != len(class_names):
        raise ValueError(f"{int(state['num_classes'])} classes but {len(class_names)} class names")
    recognizer = Recognizer(
        network,
        spec,
        Normalizer(tuple(about["normalizer"]["mean"]), tuple(about["normalizer"]["std"])),
        index,
        _load_decision(about["decision"], index, _strip_prefix(_DETECTOR, tensors)),
        class_names,
        tuple(str(layer) for layer in about["layers"]),
        dict(about["recipe"]),
        _load_outputs(_strip_prefix(_CALIBRATION, tensors), network),
        Gallery.from_state(_strip_prefix(_GALLERY, tensors), len(state["labels"])),
        tuple(name for name in class_names if name in about["enrolled"]),
    )
    decides = recognizer.decision.detector
    if not (isinstance(decides, KNN) or recognizer.logits_are_of_these_classes):
        raise ValueError(f"{network.num_classes} logits but {len(class_names)} class names")
    known = _load_known(_strip_prefix(_KNOWN, tensors), state["labels"], recognizer)
    decision = replace(recognizer.decision, known=known)
    return replace(recognizer, decision=decision), dict(about["notes"])


def _upgrade(about: Values) -> Values:
    """Convert a header of format 1 to format 2."""
    recipe = about["recipe"]
    method = recipe.get("method", "gradmix")
    classes = about.get("classifier", 0)
    spec = NetworkSpec(
        recipe["encoder"],
        recipe["stem"],
        recipe["channels"],
        recipe["image_size"],
        "none" if method == "frozen" else recipe["projection"],
        recipe["feature_dim"],
        method in _UNIT_FEATURES_IN_FORMAT_1,
        {"kind": "linear", "classes": classes, "bias": True} if classes else None,
    )
    return {
        "class_names": about["class_names"],
        "enrolled": about.get("enrolled", ()),
        "network": spec.describe(),
        "backbone": about.get("backbone"),
        "normalizer": about["normalizer"],
        "layers": recipe.get("layers", ()),
        "index": about["knn"],
        "decision": {
            "detector": KNN.name,
            "settings": about["knn"],
            "class_bias": about.get("head_start", ()),
            "threshold": about["threshold"],
        },
        "recipe": recipe,
        "notes": about.get("notes", {}),
    }


def _require_code(network: Values, own: Values | None, module: GivenModule | None, kept: str) -> Values:
    """Return the description; refuse one that needs code of the user's own that is not at hand."""
    encoder = network["encoder"]
    if encoder == BACKBONE and module is None:
        function = (own or {}).get("function")
        kind = f"{function}() of a file" if function else (own or {}).get("kind", "a module")
        raise UserError(
            f"it was made with a backbone of the user's own ({kind}); give it again: --backbone "
            f"{kept}:{function or 'FUNCTION'} (in Python with backbone=…, a module like that one)"
        )
    if encoder != BACKBONE and isinstance(module, UserBackbone):
        raise UserError(f"it has its network in it ({encoder}), and takes no other: leave --backbone out")
    if isinstance(module, UserBackbone):
        check_origin(module, own or {})
    if encoder != BACKBONE and encoder not in ENCODERS and not network.get("body"):
        raise UserError(f"it needs the encoder '{encoder}', which this version of gradmix has not")
    return network


def _load_network(
    spec: NetworkSpec, own: Values | None, module: GivenModule | None, weights: Tensors
) -> Network:
    """Build the network and give it its weights; nothing is allocated before all shapes were compared."""
    if spec.encoder == BACKBONE:
        assert own is not None
        assert module is not None
        before = bool(own.get("before", False))  # not in files of earlier versions
        code = module if isinstance(module, UserBackbone) else None
        made = copy.deepcopy(module) if isinstance(module, nn.Module) else module.build()
        backbone = Backbone(made, own["layer"], spec.channels, spec.image_size, before)
        backbone.code = code
        backbone.origin = code.origin if code else {k: own[k] for k in ("function", "sha256") if k in own}
        with register_backbone(backbone):
            network = spec.build()
    else:
        with torch.device("meta"), limit_parts(len(weights)):
            network = spec.build()
    try:
        _compare_shapes(network.state_dict(), weights)
    except ValueError as error:
        if spec.encoder != BACKBONE:
            raise
        raise UserError(f"the given backbone is not the one that it was made with: {error}") from error
    network.load_state_dict(weights, assign=True)
    if isinstance(network.encoder, Body):
        network.encoder.finish_loading()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.eval()


def _compare_shapes(wanted: Tensors, weights: Tensors) -> None:
    for name in {**wanted, **weights}:
        if name not in weights or name not in wanted:
            raise ValueError(f"its network {'lacks' if name in wanted else 'has a foreign'} '{name}'")
        if weights[name].shape != wanted[name].shape or weights[name].dtype != wanted[name].dtype:
            found, needed = tuple(weights[name].shape), tuple(wanted[name].shape)
            raise ValueError(f"'{name}' is {found} {weights[name].dtype}, not {needed} {wanted[name].dtype}")


def _load_decision(about: Values, index: KNN, state: Tensors) -> Decision:
    detector = (
        index.with_settings(**about["settings"])
        if about["detector"] == KNN.name
        else load_detector(about["detector"], about["settings"], state, index)
    )
    bias = tuple(float(b) for b in about["class_bias"])
    return Decision(detector, _load_threshold(about["threshold"]), bias)


def _unshare(tensors: Tensors) -> Tensors:
    """Copy what shares memory, which no file can hold: a detector may keep the labels of the index."""
    seen: set[int] = set()
    found = {}
    for name, value in tensors.items():
        shared = value.data_ptr() in seen and value.numel() > 0
        found[name] = value.clone() if shared else value
        seen.add(value.data_ptr())
    return found


def _outputs_state(outputs: Outputs) -> Tensors:
    state = {"features": outputs.features, "labels": outputs.labels}
    if outputs.logits is not None:
        state["logits"] = outputs.logits
    if outputs.penultimate is not None and outputs.penultimate is not outputs.features:
        state["penultimate"] = outputs.penultimate
    return state | {_EXTRA + name: values for name, values in outputs.extra.items()}


def _load_outputs(state: Tensors, network: Network) -> Outputs | None:
    if not state:
        return None
    extra = _strip_prefix(_EXTRA, state)
    parts = (state["features"], state["labels"], state.get("logits"), extra, state.get("penultimate"))
    return add_head(Outputs(*parts), network)


def _known_state(known: KnownScores) -> Tensors:
    own = {f"{_ENROLLED}{label}": found.score for label, found in known.enrolled.items()}
    return {"score": known.score, "label": known.label, **own}


def _load_known(
    state: Tensors, index_labels: Tensor, recognizer: Recognizer
) -> KnownScores | Callable[[], KnownScores | None]:
    """Return the scores that p-values compare with; of an earlier version's file, how to find them again."""
    if not state:
        return functools.partial(find_known_scores, recognizer)
    score, label, classes = state["score"], state["label"], len(recognizer.class_names)
    if score.shape != label.shape or bool((score[1:] < score[:-1]).any()):
        raise ValueError("the scores of known images are not one ascending score per label")
    enrolled = {
        int(c): EnrolledScores(int((index_labels == int(c)).sum()), own)
        for c, own in _strip_prefix(_ENROLLED, state).items()
    }
    if not ({*label.tolist()} | {*enrolled}) <= {*range(classes)}:
        raise ValueError("the scores of known images are of classes that there are not")
    return KnownScores(score, label, classes, recognizer.threshold.held_out, enrolled)


def _describe_threshold(t: Threshold) -> Values:
    """Return the threshold as JSON can hold it."""
    return {
        "value": _to_json_number(t.value),
        "false_reject": t.false_reject,
        "n": t.n,
        "guaranteed": t.guaranteed,
        "held_out": t.held_out,
        "per_class": t.per_class,
        "by_class": [[_to_json_number(c.value), c.n, c.guaranteed] for c in t.by_class],
        "spread": t.spread,
    }


def _load_threshold(plain: Values) -> Threshold:
    by_class = [
        ClassThreshold(_from_json_number(v), n, guaranteed) for v, n, guaranteed in plain.get("by_class", ())
    ]
    return Threshold(
        _from_json_number(plain["value"]),
        plain["false_reject"],
        plain["n"],
        plain["guaranteed"],
        plain.get("held_out", True),
        plain.get("per_class", False),
        tuple(by_class),
        float(plain.get("spread", 0.0)),
    )


def _to_json_number(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no infinity


def _from_json_number(number: float | None) -> float:
    return -math.inf if number is None else float(number)


def _strip_prefix(prefix: str, tensors: Tensors) -> Tensors:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
