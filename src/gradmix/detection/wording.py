"""Answers in words for people who do not know what a score is. Everybody who shows an answer uses these."""

from __future__ import annotations

import math

_RARE = 0.2  # from here down "1 in N" reads better than "N of 100"


def describe_answer(nearest: str, known: bool, p_value: float) -> str:
    """Return the answer for one image in one sentence.

    ``nearest`` is the class that it looks most like, ``known`` whether it was accepted as that.

    >>> describe_answer("lakeside", False, 0.005)
    'unknown: most like lakeside, but only 1 in 200 known images looks as unusual (p = 0.005)'
    >>> describe_answer("espresso", True, 0.62)
    'espresso: ordinary, 62 of 100 known images look as unusual (p = 0.62)'
    """
    if not known:
        return f"unknown: most like {nearest}, but {describe_p(p_value)}"
    kind = "a little unusual, " if p_value <= _RARE else "ordinary, " if p_value < 1 else ""
    return f"{nearest}: {kind}{describe_p(p_value)}"


def describe_p(p_value: float) -> str:
    """Return what a p-value says about how unusual an image is for a known one, and the p-value itself.

    >>> describe_p(0.031)
    'only 1 in 32 known images looks as unusual (p = 0.031)'
    >>> describe_p(1.0)
    'as familiar as any known image that it was compared with (p = 1)'
    """
    if math.isnan(p_value):
        return "how unusual that is for a known image is not known: the model has none to compare with"
    value = f"(p = {p_value:.2g})"
    if p_value <= _RARE:
        return f"only 1 in {round(1 / p_value):,} known images looks as unusual {value}"
    if p_value < 1:
        return f"{math.floor(100 * p_value + 0.5)} of 100 known images look as unusual {value}"
    return f"as familiar as any known image that it was compared with {value}"
