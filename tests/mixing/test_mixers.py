"""GradMix, CutMix and Mixup behind their one interface."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradmix.errors import UserError
from gradmix.mixing import MIXERS, CutMix, GradMix, Mixed, Mixer, Mixup, boxes_at_peak, boxes_at_window
from tests.reference.mixing import corners, inside, paste_cropped, paste_resized

VARIANTS: dict[str, Mixer] = {
    "gradmix": GradMix(),
    "gradmix, window, crop, one γ": GradMix(gamma_per="batch", locate="window", patch="crop"),
    "cutmix": CutMix(),
    "cutmix, α": CutMix(alpha=1.0),
    "mixup": Mixup(),
    "mixup, one λ": Mixup(alpha=0.3, gamma_per="batch"),
}
PATCHING = [name for name in VARIANTS if "mixup" not in name]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(n: int = 6, rows: int = 12, columns: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    """Images, partners and maps."""
    generator = seeded(99)
    images, partners = torch.randn(2, n, 3, rows, columns, generator=generator)
    return images, partners, torch.rand(n, rows, columns, generator=generator)


def mix(mixer: Mixer, *, seed: int = 0, n: int = 6, rows: int = 12, columns: int = 9) -> Mixed:
    return mixer(*batch(n, rows, columns), seeded(seed))


@pytest.mark.parametrize("name", VARIANTS)
def test_same_seed_same_bytes(name: str) -> None:
    first, again, other = (mix(VARIANTS[name], seed=seed) for seed in (5, 5, 6))
    assert torch.equal(first.images, again.images)
    assert torch.equal(first.share, again.share)
    assert not torch.equal(first.images, other.images)


@pytest.mark.parametrize("name", VARIANTS)
def test_only_the_given_generator_is_used(name: str) -> None:
    before = torch.get_rng_state()
    mix(VARIANTS[name])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", VARIANTS)
def test_successive_calls_differ(name: str) -> None:
    generator = seeded()
    first, second = (VARIANTS[name](*batch(), generator) for _ in range(2))
    assert not torch.equal(first.images, second.images)


@pytest.mark.parametrize("name", VARIANTS)
def test_shapes_and_share(name: str) -> None:
    mixed = mix(VARIANTS[name])
    assert mixed.images.shape == (6, 3, 12, 9)
    assert mixed.images.dtype == mixed.share.dtype == torch.float32
    assert mixed.share.shape == (6,)
    assert ((mixed.share >= 0) & (mixed.share <= 1)).all()


@pytest.mark.parametrize("name", PATCHING)
def test_patching_mixers_paste_their_boxes_and_report_the_true_area(name: str) -> None:
    images, partners, maps = batch()
    mixer = VARIANTS[name]
    mixed = mixer(images, partners, maps, seeded())
    assert mixed.boxes is not None
    slow = paste_cropped if getattr(mixer, "patch") == "crop" else paste_resized  # noqa: B009
    torch.testing.assert_close(mixed.images, slow(images, partners, mixed.boxes), rtol=0, atol=1e-5)
    counted = inside(mixed.boxes, (12, 9)).flatten(1).sum(1) / (12 * 9)
    torch.testing.assert_close(mixed.share, counted, rtol=1e-7, atol=0)


@pytest.mark.parametrize("mixer", [GradMix, CutMix])
def test_gamma_per_batch_is_one_value_and_per_sample_many(mixer: Any) -> None:
    one = mix(mixer(gamma_per="batch"), n=16, rows=100, columns=80).boxes
    many = mix(mixer(gamma_per="sample"), n=16, rows=100, columns=80).boxes
    assert one is not None
    assert many is not None
    assert len(one.height.unique()) == len(one.width.unique()) == 1
    assert len(many.height.unique()) > 8


def test_mixup_scope() -> None:
    assert len(mix(Mixup(gamma_per="batch")).share.unique()) == 1
    assert len(mix(Mixup(gamma_per="sample")).share.unique()) == 6


@pytest.mark.parametrize("mixer", [GradMix(), CutMix(), GradMix(gamma_min=0.3, gamma_max=0.3)])
def test_gamma_is_uniform_over_its_range(mixer: GradMix | CutMix) -> None:
    boxes = mix(mixer, n=2000, rows=100, columns=1).boxes
    assert boxes is not None
    side = boxes.height.double() / 100
    low, high = mixer.gamma_min, mixer.gamma_max
    assert low - 0.005 <= side.min()
    assert side.max() <= high + 0.005
    deviation = (high - low) / 12**0.5
    assert side.mean().item() == pytest.approx((low + high) / 2, abs=4 * deviation / 2000**0.5 + 1e-9)
    assert side.std().item() == pytest.approx(deviation, rel=0.05, abs=1e-9)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_beta_has_its_mean_and_variance(alpha: float) -> None:
    """Beta(α, α): mean ½, variance 1 / (4(2α + 1))."""
    n = 20_000
    generator = seeded(1)
    share = Mixup(alpha=alpha)(
        torch.zeros(n, 1, 1, 1), torch.ones(n, 1, 1, 1), None, generator
    ).share.double()
    variance = 1 / (4 * (2 * alpha + 1))
    assert share.mean().item() == pytest.approx(0.5, abs=4 * (variance / n) ** 0.5)
    assert share.var().item() == pytest.approx(variance, rel=0.04)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_cutmix_with_alpha_has_a_beta_distributed_area(alpha: float) -> None:
    share = mix(CutMix(alpha=alpha), n=1000, rows=64, columns=64).share.double()
    variance = 1 / (4 * (2 * alpha + 1))
    assert share.mean().item() == pytest.approx(0.5, abs=4 * (variance / 1000) ** 0.5)
    assert share.var().item() == pytest.approx(variance, rel=0.15)


def test_mixup_is_the_convex_mix() -> None:
    images, partners, _ = batch()
    mixed = Mixup()(images, partners, None, seeded())
    for i, share in enumerate(mixed.share.tolist()):
        expected = (1 - share) * images[i].double() + share * partners[i].double()
        torch.testing.assert_close(mixed.images[i].double(), expected, rtol=1e-5, atol=1e-6)
    assert mixed.boxes is None


@pytest.mark.parametrize(("locate", "function"), [("peak", boxes_at_peak), ("window", boxes_at_window)])
def test_gradmix_puts_the_patch_where_the_map_says(locate: str, function: Any) -> None:
    images, partners, maps = batch()
    mixer = GradMix(gamma_min=0.4, gamma_max=0.4, locate=locate)
    boxes = mixer(images, partners, maps, seeded()).boxes
    assert boxes is not None
    assert corners(boxes) == corners(function(maps, torch.full((6,), 0.4)))


def test_gradmix_and_cutmix_differ_in_the_place_only() -> None:
    one, two = mix(GradMix(), n=30).boxes, mix(CutMix(), n=30).boxes
    assert one is not None
    assert two is not None
    assert torch.equal(one.height, two.height)
    assert torch.equal(one.width, two.width)
    assert not torch.equal(one.top, two.top)


def test_a_share_of_one_batch_gamma_is_the_same_for_all() -> None:
    assert len(mix(GradMix(gamma_per="batch"), n=20).share.unique()) == 1


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gradmix", {"locate": "peek"}, "no locate 'peek'; did you mean 'peak'"),
        ("gradmix", {"gamma_per": "samples"}, "no gamma_per 'samples'; did you mean 'sample'"),
        ("gradmix", {"patch": "corp"}, "no patch 'corp'; did you mean 'crop'"),
        ("cutmix", {"patch": "resise"}, "no patch 'resise'; did you mean 'resize'"),
        ("cutmix", {"gamma_per": "bach"}, "no gamma_per 'bach'; did you mean 'batch'"),
        ("mixup", {"gamma_per": "bach"}, "no gamma_per 'bach'; did you mean 'batch'"),
        ("gradmix", {"gamma_min": 0.6}, "not 0.6 and 0.5"),
        ("gradmix", {"gamma_min": 0.0}, "0 < gamma_min"),
        ("cutmix", {"gamma_max": 1.5}, "gamma_max <= 1"),
        ("cutmix", {"alpha": 0.0}, "alpha must be positive"),
        ("mixup", {"alpha": -1.0}, "alpha must be positive"),
        ("mixup", {"alpha": float("nan")}, "alpha must be positive"),
        ("mixup", {"alpha": float("inf")}, "alpha must be positive and finite"),
    ],
)
def test_wrong_settings_are_refused_when_they_are_given(
    name: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        MIXERS[name](**settings)


def test_gradmix_without_fitting_maps() -> None:
    images, partners, maps = batch()
    with pytest.raises(UserError, match="needs one map"):
        GradMix()(images, partners, None, seeded())
    with pytest.raises(UserError, match=r"maps \(6, 12, 8\) for images \(6, 3, 12, 9\)"):
        GradMix()(images, partners, maps[:, :, :-1], seeded())


def test_who_needs_maps() -> None:
    assert {name: MIXERS[name]().needs_maps for name in MIXERS} == {
        "gradmix": True,
        "cutmix": False,
        "mixup": False,
    }
