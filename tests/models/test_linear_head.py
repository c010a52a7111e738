"""The head on the penultimate activation: exact through a linear projection, none through anything else."""

from __future__ import annotations

import pytest
import torch

from gradmix.models import NetworkSpec

IMAGES = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def spec(**fields: object) -> NetworkSpec:
    head = {"kind": "linear", "classes": 3, "bias": True}
    return NetworkSpec(
        **{"encoder": "resnet8_16", "stem": "half", "channels": 1, "image_size": 8, "head": head} | fields
    )


@pytest.mark.parametrize("projection", ["linear", "none"])
@pytest.mark.parametrize(
    "head",
    [
        {"kind": "linear", "classes": 3, "bias": True},
        {"kind": "linear", "classes": 3, "bias": False},
        {"kind": "dummies", "classes": 3, "dummies": 2},
    ],
)
@torch.no_grad()
def test_the_head_on_h_gives_the_networks_logits(projection: str, head: dict[str, object]) -> None:
    torch.manual_seed(0)
    network = spec(projection=projection, head=head, feature_dim=6).build().eval()
    answer, found = network.answer(IMAGES), network.linear_head()
    assert found is not None
    assert answer.penultimate is not None
    assert answer.logits is not None
    assert torch.equal(answer.penultimate, network.encoder(IMAGES))
    assert found[0].shape == (3, answer.penultimate.shape[1])
    torch.testing.assert_close(
        answer.penultimate @ found[0].T + found[1], answer.logits, rtol=1e-5, atol=1e-5
    )
    assert network.features_are_penultimate == (projection == "none")


@pytest.mark.parametrize(
    "fields",
    [
        {"projection": "mlp"},
        {"head": None},
        {"head": {"kind": "points", "classes": 3}},
        {"head": {"kind": "mlp", "classes": 3}},
    ],
)
def test_where_the_logits_are_no_linear_map_there_is_none(fields: dict[str, object]) -> None:
    assert spec(**fields).build().linear_head() is None


def test_directions_are_not_what_the_encoder_gives() -> None:
    network = spec(projection="none", unit_features=True).build().eval()
    assert not network.features_are_penultimate
    with torch.no_grad():
        answer = network.answer(IMAGES)
    assert answer.penultimate is not None
    torch.testing.assert_close(
        torch.nn.functional.normalize(answer.penultimate, dim=1), answer.features, rtol=1e-6, atol=1e-6
    )
