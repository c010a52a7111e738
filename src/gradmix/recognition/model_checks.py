"""Refuse names that no class may have, and a model file whose header would load, and then mislead.

The checksum finds what chance has changed. These checks find what was written wrongly, by another program or
by somebody who means harm: a threshold that is no number would end whoever compares with it, a short list of
thresholds would fail at the first image of a later class, and two classes of one name cannot be told apart.
"""

from __future__ import annotations

import math
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from ..detection import UNKNOWN_NAME
from ..errors import UserError

LARGEST_IMAGE = 4096  # pixels per side; of larger ones, a single batch would not fit into memory
_LARGEST_INTEGER = 2**53  # what every JSON reader understands
_NOT_USED = ("recipe", "notes")  # to be read by people only

# Cyrillic and Greek letters that look like Latin ones in most fonts.
_LOOK_ALIKES = str.maketrans(
    dict(
        zip(
            "АВЕКМНОРСТУХІЈЅаеорсухіјѕԁһ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧο",
            "ABEKMHOPCTYXIJSaeopcyxijsdh" + "ABEZHIKMNOPTYXo",
            strict=True,
        )
    )
)
_VARIATION_SELECTORS = dict.fromkeys(range(0xFE00, 0xFE10))


def check_name(name: str) -> None:
    """Raise UserError for a class name that cannot be printed, or that is the answer for all others."""
    if not name.strip() or not name.isprintable():
        raise UserError(f"a class needs a name that can be printed, not {name!r}")
    if _visible(name).casefold() == UNKNOWN_NAME:
        raise UserError(f"no class can be called '{name}': that is the answer for all others")


def check_names(names: Iterable[str]) -> None:
    """Raise UserError for a name that no class may have, and for two that look the same.

    Two names that differ in case only are two names: letters are classes, too.

    >>> check_names(["a", "A"])
    >>> check_names(["cafe\\u0301", "caf\\u00e9"])
    Traceback (most recent call last):
    ...
    gradmix.errors.UserError: the classes 'cafe\\u0301' and 'caf\\xe9' look the same; rename one
    """
    seen: dict[str, str] = {}
    for name in names:
        check_name(name)
        looks = _visible(name)
        if seen.get(looks) == name:
            raise UserError(f"two classes are called '{name}'")
        if looks in seen:
            raise UserError(f"the classes {seen[looks]!a} and {name!a} look the same; rename one")
        seen[looks] = name


def _visible(name: str) -> str:
    """Return what a reader sees of a name: composed, single spaces, Latin letters for their twins."""
    composed = unicodedata.normalize("NFC", name).translate(_VARIATION_SELECTORS)
    return " ".join(composed.translate(_LOOK_ALIKES).split())


def check_header(about: Mapping[str, Any]) -> None:
    """Raise UserError, TypeError or the like for a header of format 2 that no model could have written."""
    for where, number in _numbers({k: v for k, v in about.items() if k not in _NOT_USED}):
        if isinstance(number, float) and not math.isfinite(number):
            raise UserError(f"its {where} is not a number")
        if abs(number) > _LARGEST_INTEGER:
            raise UserError(f"its {where} is out of all bounds")
    names = about["class_names"]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise UserError("its class_names are no list of names")
    check_names(names)
    enrolled = list(about["enrolled"])
    if not set(enrolled) <= set(names) or len(set(enrolled)) != len(enrolled):
        raise UserError("its enrolled classes are not among its classes")
    _check_network(about["network"])
    _check_normalizer(about["normalizer"], about["network"]["channels"])
    _check_decision(about["decision"], len(names))


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Raise UserError for weights or features that are not numbers."""
    for name, value in tensors.items():
        if not value.is_floating_point() or bool(value.sum().isfinite()):
            continue  # the sum is finite only if all are, and needs no memory
        if not bool(value.isfinite().all()):
            raise UserError(f"its tensor '{name}' has values that are not numbers")


def _check_network(network: Mapping[str, Any]) -> None:
    sizes = {"channels": (1, 3), "image_size": range(1, LARGEST_IMAGE + 1), "feature_dim": range(2**31)}
    for name, allowed in sizes.items():
        if type(network[name]) is not int or network[name] not in allowed:
            raise UserError(f"its {name} cannot be {network[name]!r}")
    if not isinstance(network.get("unit_features", False), bool):
        raise UserError("its unit_features is neither true nor false")


def _check_normalizer(normalizer: Mapping[str, Any], channels: int) -> None:
    mean, std = normalizer["mean"], normalizer["std"]
    if len(mean) != channels or len(std) != channels:
        raise UserError(f"it has {len(mean)} means and {len(std)} deviations for {channels} channels")
    # Of pixels in [0, 1].
    if not all(-10 <= value <= 10 for value in mean) or not all(1e-4 <= value <= 10 for value in std):
        raise UserError(f"its mean {mean} and std {std} cannot be those of pixels")


def _check_decision(decision: Mapping[str, Any], classes: int) -> None:
    threshold, settings = decision["threshold"], decision["settings"]
    bias = list(decision["class_bias"])
    if len(bias) not in (0, classes):
        raise UserError(f"{len(bias)} class biases but {classes} class names")
    # A bias makes up for a difference of similarities, which are sums of k cosines.
    if bias and not all(0 <= value <= 2.001 * settings["k"] for value in bias):
        raise UserError("a class bias is negative, or larger than any similarity")
    if not 0 < threshold["false_reject"] < 1:
        raise UserError(f"its false_reject must lie between 0 and 1, not {threshold['false_reject']}")
    flags = [threshold["guaranteed"], threshold.get("held_out", True), threshold.get("per_class", False)]
    counts, values = [threshold["n"]], [threshold["value"]]
    by_class = list(threshold.get("by_class", ()))
    if len(by_class) not in (0, classes):
        raise UserError(f"it has thresholds of {len(by_class)} classes for {classes} classes")
    for value, n, guaranteed in by_class:
        values.append(value)
        counts.append(n)
        flags.append(guaranteed)
    if not all(isinstance(flag, bool) for flag in flags):
        raise UserError("its threshold says neither yes nor no to whether it is promised")
    if not all(type(n) is int and n >= 0 for n in counts):
        raise UserError("its threshold was set with an impossible number of images")
    if not all(value is None or type(value) in (int, float) for value in values):
        raise UserError("its threshold is not a number")
    if threshold.get("spread", 0.0) < 0:
        raise UserError("the spread of its scores is negative")


def _numbers(value: Any, where: str = "header") -> Iterator[tuple[str, float]]:
    """Yield (where it is, number) of all numbers; of a list, where the list is."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _numbers(inner, where)
    elif isinstance(value, int | float):
        yield where, value


@contextmanager
def limit_parts(tensors: int) -> Iterator[None]:
    """Let this thread make only modules that so many tensors may be the weights of, and few others.

    A header may ask for a billion layers; made one by one, they take hours even where they take no memory.
    """
    thread, left = threading.get_ident(), 4 * tensors + 64  # some are registered more than once

    def count(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        nonlocal left
        if threading.get_ident() == thread:
            left -= 1
            if left < 0:
                raise UserError("its network would have more layers than there are weights for")

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()
