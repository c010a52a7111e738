"""CLIP against transformers' (towers) and OpenAI's own tokenizer: same weights, same numbers."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from gradmix.models import NetworkSpec
from gradmix.models.bodies import Plan
from gradmix.models.clip import TextTower, VisionTower, load_tokenizer, use_openai_names
from gradmix.models.clip.text import read_scale
from tests.models.tiny_clip import CONTEXT, DIM, LAYERS, PATCH, WORDS, tiny_clip
from tests.training.tiny import SIDE

pytestmark = pytest.mark.oracle
END = WORDS - 1
WIDTH, HEADS = 128, 2
TEXTS = ("a photo of a dog.", "a photo of a Ferris wheel!", "it's 3,141 cats' naïve _under_score — ½ été")


@pytest.fixture(scope="module", params=["quick_gelu", "gelu"])
def theirs(request: pytest.FixtureRequest) -> Any:
    """A random CLIPModel of transformers, two layers per tower."""
    transformers = pytest.importorskip("transformers", reason="transformers (extra dev) is not installed")
    shared = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_hidden_layers": LAYERS}
    shared |= {"num_attention_heads": HEADS, "hidden_act": request.param, "projection_dim": DIM}
    config = transformers.CLIPConfig(
        text_config={
            **shared,
            "vocab_size": WORDS,
            "max_position_embeddings": CONTEXT,
            "eos_token_id": END,
        },
        vision_config={**shared, "image_size": SIDE, "patch_size": PATCH},
        projection_dim=DIM,
    )
    torch.manual_seed(0)
    model = transformers.CLIPModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # also those that begin at 0 or 1
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def activation_of(model: Any) -> str:
    return str(model.config.vision_config.hidden_act)


def features_of(model: Any, **inputs: Tensor) -> Tensor:
    call = model.get_image_features if "pixel_values" in inputs else model.get_text_features
    with torch.no_grad():
        found = call(**inputs)
    found = getattr(found, "pooler_output", found)  # a tensor until version 4
    return found / found.norm(dim=1, keepdim=True)


def test_the_image_tower_is_theirs(theirs: Any) -> None:
    images = torch.randn(3, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    tower = VisionTower(Plan(_no_encoder, 3, SIDE, theirs.state_dict()), activation_of(theirs)).eval()
    ours = torch.nn.functional.normalize(tower(images), dim=1)
    torch.testing.assert_close(ours, features_of(theirs, pixel_values=images), atol=1e-5, rtol=0)
    assert (tower.width, tower.layers, tower.patch, tower.dim) == (WIDTH, LAYERS, PATCH, DIM)


def test_the_text_tower_is_theirs(theirs: Any) -> None:
    tokenizer = load_tokenizer()
    tower = TextTower(use_openai_names(theirs.state_dict()), activation_of(theirs))
    for text in TEXTS:  # one by one: each has a length of its own
        numbers = torch.tensor([[tokenizer.start, *tokenizer.encode(text), tokenizer.end]])
        wanted = features_of(theirs, input_ids=numbers, attention_mask=torch.ones_like(numbers))
        torch.testing.assert_close(tower.encode([text]), wanted, atol=1e-5, rtol=0)
    one_by_one = torch.cat([tower.encode([text]) for text in TEXTS])
    torch.testing.assert_close(tower.encode(TEXTS), one_by_one, atol=1e-5, rtol=0)


def test_their_names_and_ours_are_the_same_weights(theirs: Any) -> None:
    ours = {name: value.detach() for name, value in use_openai_names(theirs.state_dict()).items()}
    wanted = tiny_clip(width=WIDTH)
    assert {name: value.shape for name, value in ours.items()} == {n: v.shape for n, v in wanted.items()}
    assert float(read_scale(ours)) == pytest.approx(min(100.0, float(theirs.logit_scale.detach().exp())))


def _no_encoder(channels: int) -> Any:
    raise AssertionError("a body in place of the encoder needs none")


def openai_tokenizer() -> ModuleType:
    """The tokenizer of the package that carries the vocabulary, without the rest of it (torchvision)."""
    pytest.importorskip("ftfy", reason="ftfy (with the extra clip) is not installed")
    try:
        path = importlib.metadata.distribution("openai-clip").locate_file("clip/simple_tokenizer.py")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("openai-clip (extra clip) is not installed")
    spec = importlib.util.spec_from_file_location("openai_simple_tokenizer", Path(str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tokens_are_those_of_openai() -> None:
    peer: Any = openai_tokenizer().SimpleTokenizer()
    ours = load_tokenizer()
    more = ("Golden-Retriever", "state of the art", "日本語 ok", "x" * 40, "floccinaucinihilipilification")
    for text in (*TEXTS, *more):
        assert ours.encode(text) == peer.encode(text), text
    assert (ours.start, ours.end) == (peer.encoder["<|startoftext|>"], peer.encoder["<|endoftext|>"])


def test_a_network_of_the_spec_is_theirs_too(theirs: Any, tmp_path: Path) -> None:
    """The whole way: a file by transformers' names, the body of a spec, unit features."""
    torch.save(theirs.state_dict(), tmp_path / "clip.pt")
    body = {"kind": "clip", "activation": activation_of(theirs)}
    spec = NetworkSpec("clip", "auto", 3, SIDE, "none", unit_features=True, body=body)
    network = spec.build(str(tmp_path / "clip.pt")).eval()
    images = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        found = network.answer(images).features
    torch.testing.assert_close(found, features_of(theirs, pixel_values=images), atol=1e-5, rtol=0)
