"""The covering test on a network whose answer is known: it names an image by one small spot."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gradmix.bench.attention import HEAT_MAP, CoveringTest, measure_covering
from gradmix.cli import main
from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.mixing import random_boxes
from gradmix.models import Network, NetworkSpec
from gradmix.models.given_network import GivenNetwork
from gradmix.models.heads import LinearHead
from gradmix.recognition import Recognizer, fit, save
from gradmix.recognition.given_network import make_recognizer
from gradmix.training.seeds import generator_for
from gradmix.views import Normalizer
from tests.training.tiny import make_photos, tiny_images, tiny_recipe

SIDE, COUNT = 16, 40


class Spots(nn.Module):
    """How much red, and how much green there is, summed over the image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.dim, self.layer_names = "small", 2, {"conv2_2": "relu", "conv3_2": "same"}
        self.relu, self.same = nn.ReLU(), nn.Identity()
        self.weight = nn.Parameter(torch.tensor([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]]))

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.same(self.relu(torch.einsum("kc,nchw->nkhw", self.weight, x))).sum((2, 3))
        return pooled


@pytest.fixture
def recognizer() -> Recognizer:
    """Red spot: class 0; green spot: class 1; no spot: class 2, which no image is of."""
    head = LinearHead(2, 3, bias=True)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
        head.bias.copy_(torch.tensor([0.0, 0.0, 0.5]))
    network = Network(Spots(), 2, 2, "none", head).eval()
    spec = NetworkSpec("vgg32", "small", 3, SIDE, "none", 2, head=head.describe())
    return make_recognizer(GivenNetwork(network, spec, ""), Normalizer((0.5,) * 3, (0.25,) * 3), "abc")


@pytest.fixture
def images() -> ImageSet:
    """Gray, with a spot of 2 × 2 pixels right of and below the middle."""
    pixels = torch.full((COUNT, 3, SIDE, SIDE), 128, dtype=torch.uint8)
    labels = torch.arange(COUNT) % 2
    corners = torch.randint(8, SIDE - 1, (COUNT, 2), generator=generator_for(0, "spots"))
    for i, (y, x) in enumerate(corners.tolist()):
        pixels[i, labels[i], y : y + 2, x : x + 2] = 255
    return ImageSet(pixels, labels, tuple("abc"))


def left_of(found: CoveringTest) -> dict[tuple[str, str, int], float]:
    return {(row.target, row.sign, len(row.layers)): row.left for row in found.rows}


def test_evidence_finds_the_spot_and_the_printed_sign_does_not(
    recognizer: Recognizer, images: ImageSet
) -> None:
    """The loss falls where there is more of the spot: its gradient there is negative, and ReLU removes it."""
    found = measure_covering(recognizer, images)
    assert found.images == COUNT
    assert found.uncovered == 1.0
    left = left_of(found)
    for layers in (1, 2):
        assert left["cross-entropy", "evidence", layers] == 0.0
        assert left["logit", "evidence", layers] == 0.0
        assert left["cross-entropy", "printed", layers] == 1.0  # the empty map's peak is the first pixel
    assert left[HEAT_MAP, "evidence", 1] == 0.0


def test_a_random_square_is_counted_image_by_image(recognizer: Recognizer, images: ImageSet) -> None:
    boxes = random_boxes(COUNT, torch.full((COUNT,), 0.375), (SIDE, SIDE), generator_for(0, "covering"))
    right = 0
    for i in range(COUNT):
        y, x = (images.images[i, images.labels[i]] == 255).nonzero()[0].tolist()
        top, side, start = int(boxes.top[i]), int(boxes.height[i]), int(boxes.left[i])
        hidden = [(y + a, x + b) for a in (0, 1) for b in (0, 1)]
        right += not all(top <= p < top + side and start <= q < start + side for p, q in hidden)
    assert 0 < right < COUNT
    assert measure_covering(recognizer, images).random == pytest.approx(right / COUNT)


def test_a_model_of_gradmix_has_the_maps_of_its_own_terms() -> None:
    model = fit(tiny_images(8), tiny_recipe(epochs=1))
    found = measure_covering(model, tiny_images(4, seed=3))
    kinds = {(row.target, row.sign) for row in found.rows}
    both = {(name, sign) for name in ("objective", "ssl") for sign in ("printed", "evidence")}
    assert kinds == both | {("similarity", "evidence"), (HEAT_MAP, "evidence")}
    assert len(found.rows) == 5 * 5 + 1  # four layers and all of them, and the heat map


def test_mistakes_are_said(recognizer: Recognizer, images: ImageSet) -> None:
    with pytest.raises(UserError, match="must lie between 0 and 1"):
        measure_covering(recognizer, images, 1.5)
    with pytest.raises(UserError, match="needs images"):
        measure_covering(recognizer, images.select([]))


def test_the_command_prints_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_photos(Path("known"))
    save(fit(tiny_images(8), tiny_recipe(epochs=1)), "model")
    words = ["bench", "attention", "model", "--known", "known", "--unknown", "known"]
    assert main([*words, "--images", "6", "--side", "0.5"]) == 0
    out = capsys.readouterr().out
    assert "objective" in out
    assert "6 images, per cent: uncovered" in out
    assert main(["bench", "attention"]) == 2
    assert "which network?" in capsys.readouterr().err
