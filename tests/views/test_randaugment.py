"""What RandAugment draws, and that a batch gets what its images would get alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gradmix.errors import UserError
from gradmix.views import Augment, Normalizer, ViewSettings
from gradmix.views.randaugment import OPERATION_LISTS, OPERATIONS, RandAugment, RandAugmentDraws

MOVING = {"rotate", "translate_x", "translate_y"}
PLAIN = ViewSettings(crop="pad", pad=0, flip=False, jitter_chance=0, grey_chance=0, normalize="none")
UNIT = Normalizer((0.0,) * 3, (1.0,) * 3)


def images(n: int = 40, side: int = 32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n, 3, side, side), generator=generator).to(torch.uint8)


def draw(count: int, magnitude: int, operations: str = "all", n: int = 4000) -> RandAugmentDraws:
    return RandAugment(count, magnitude, operations).draw(n, torch.Generator().manual_seed(0))


def values_of(draws: RandAugmentDraws, name: str) -> set[float]:
    found = draws.values[draws.operations == OPERATIONS.index(name)]
    return {round(float(value), 6) for value in found}


def test_the_lists_are_the_released_ones() -> None:
    assert {name: len(span) for name, span in OPERATION_LISTS.items()} == {
        "all": 16,
        "digits": 13,
        "medaf": 14,
    }
    assert set(OPERATION_LISTS["all"]) - set(OPERATION_LISTS["digits"]) == MOVING
    assert not {"invert", "cutout", "solarize_add"} & set(OPERATION_LISTS["medaf"])


def test_values_are_those_of_the_magnitude() -> None:
    """v = lo + M/30·(hi − lo) at M = 6, with a random sign where something moves."""
    six = draw(1, 6)
    wanted = {"rotate": 6, "shear_x": 0.06, "translate_y": 20}
    assert {name: values_of(six, name) for name in wanted} == {n: {-v, v} for n, v in wanted.items()}
    unsigned = {"posterize": 0.8, "solarize": 51.2, "solarize_add": 22, "color": 0.46, "cutout": 8}
    assert {name: values_of(six, name) for name in unsigned} == {n: {v} for n, v in unsigned.items()}
    assert values_of(draw(1, 30), "sharpness") == {1.9}
    assert values_of(draw(1, 0), "sharpness") == {0.1}


@pytest.mark.parametrize("operations", ["all", "digits"])
def test_all_operations_are_equally_likely(operations: str) -> None:
    drawn = draw(2, 6, operations, n=8000).operations.flatten()
    counts = torch.bincount(drawn, minlength=len(OPERATIONS))
    listed = OPERATION_LISTS[operations]
    for number, name in enumerate(OPERATIONS):
        share = float(counts[number]) / len(drawn)
        assert share == pytest.approx(1 / len(listed) if name in listed else 0, abs=0.008), name


def test_medaf_leaves_out_half_and_draws_the_strength() -> None:
    drawn = draw(2, 10, "medaf")
    idle = float((drawn.operations == 0).double().mean())
    assert idle == pytest.approx(0.5 + 0.5 / 14, abs=0.02)  # identity is one of the 14 as well
    tenths = [round(0.05 + 0.09 * m, 6) for m in range(1, 10)]
    assert values_of(drawn, "brightness") == set(tenths)
    assert values_of(drawn, "rotate") == {s * 3.0 * m for m in range(1, 10) for s in (-1, 1)}
    assert {int(bits) for bits in values_of(drawn, "posterize")} == {4, 5, 6, 7}
    assert values_of(drawn, "solarize") == {round(256 - 25.6 * m, 6) for m in range(1, 10)}
    assert values_of(draw(1, 2, "medaf"), "shift_x") == {-0.03, 0.03}


def test_a_batch_gets_what_each_image_would_get_alone() -> None:
    """Grouping by operation, tables and samplings together, in two steps of which the order counts."""
    batch = images()
    for operations in OPERATION_LISTS:
        draws = draw(2, 9, operations, n=len(batch))
        together = RandAugment.apply(batch, draws)
        for i in range(len(batch)):
            row = slice(i, i + 1)
            first, second = (
                RandAugmentDraws(
                    *(part[row, step : step + 1] for part in (draws.operations, draws.values, draws.spots))
                )
                for step in (0, 1)
            )
            alone = RandAugment.apply(RandAugment.apply(batch[row], first), second)
            assert torch.equal(together[i], alone[0]), (operations, i)


def test_the_images_are_left_as_they_were() -> None:
    batch = images()
    before = batch.clone()
    assert not torch.equal(RandAugment.apply(batch, draw(1, 9, n=len(batch))), before)
    assert torch.equal(batch, before)


def test_the_views_are_the_operations_and_nothing_else() -> None:
    """With nothing else switched on, the view is the operated image, to the byte."""
    batch, settings = images(), replace(PLAIN, randaugment=(2, 9))
    augment = Augment(settings, UNIT)
    draws = augment.draw(len(batch), torch.Generator().manual_seed(3))
    assert draws.randaugment is not None
    seen = augment.apply(batch, draws)
    assert torch.equal((seen * 255).round().to(torch.uint8), RandAugment.apply(batch, draws.randaugment))


def test_it_comes_before_crop_and_flip() -> None:
    """A translation by 20 pixels leaves a black band, which the shift and the flip then move."""
    batch = torch.full((64, 3, 32, 32), 255, dtype=torch.uint8)
    settings = replace(PLAIN, pad=4, flip=True, randaugment=(1, 6))
    augment = Augment(settings, UNIT)
    draws = augment.draw(64, torch.Generator().manual_seed(0))
    assert draws.randaugment is not None
    first = RandAugment.apply(batch, draws.randaugment)
    plain = Augment(replace(settings, randaugment=(0, 0)), UNIT)
    after = plain.apply(first, plain.draw(64, torch.Generator().manual_seed(0)))
    assert torch.equal(augment.apply(batch, draws), after)
    plain_first = plain.apply(batch, plain.draw(64, torch.Generator().manual_seed(0)))
    other = RandAugment.apply((plain_first * 255).round().to(torch.uint8), draws.randaugment).float() / 255
    assert not torch.equal(other, after)


def test_crops_and_colors_are_those_of_the_same_seed_without_it() -> None:
    plain, more = (
        Augment(ViewSettings(randaugment=choice), UNIT).draw(9, torch.Generator().manual_seed(5))
        for choice in ((0, 0), (1, 6))
    )
    for name in ("crops", "brightness", "contrast", "saturation", "hue"):
        assert torch.equal(getattr(plain, name), getattr(more, name)), name
    assert plain.randaugment is None


def test_processes_that_share_a_batch_see_what_one_would_see() -> None:
    batch = images(8)
    settings = ViewSettings(crop="pad", randaugment=(2, 10), randaugment_operations="medaf", gain=(0.1, 2.0))
    augment = Augment(settings, UNIT)
    whole = augment(batch, torch.Generator().manual_seed(1))
    for rows in (slice(0, 4), slice(4, 8)):
        own = augment.draw(8, torch.Generator().manual_seed(1))[rows]
        torch.testing.assert_close(augment.apply(batch[rows], own), whole[rows])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"randaugment": (1, 31)}, "M of 'all' must lie between 0 and 30, not 31"),
        ({"randaugment": (-1, 6)}, "N must not be negative"),
        (
            {"randaugment": (2, 1), "randaugment_operations": "medaf"},
            "M of 'medaf' must lie between 2 and 10",
        ),
        ({"randaugment_operations": "digit"}, "did you mean 'digits'"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ViewSettings(**fields)  # type: ignore[arg-type]
