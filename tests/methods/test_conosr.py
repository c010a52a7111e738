"""ConOSR: the weights worked out by hand, SupCon as its limit, spectral norms, and its two stages."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.losses import supcon
from gradmix.losses.smoothing import smooth_targets
from gradmix.methods import ConOSR, Progress, Views, conosr
from gradmix.methods.conosr import ConOSRSettings
from gradmix.models import MLPHead, Network, NetworkSpec, build_head
from gradmix.training import load_recipe, session, train
from tests.reference import losses as reference
from tests.training.tiny import tiny_images, tiny_recipe

MIX = 0.3


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_method(**fields: float) -> ConOSR:
    """With embeddings that are the images themselves, (N, 4, 1, 1)."""
    torch.manual_seed(0)
    head = MLPHead(4, 3, hidden=6, spectral=True)
    settings = ConOSRSettings(**{"contrast_dim": 5, **fields})  # type: ignore[arg-type]
    return ConOSR(Network(nn.Flatten(), 4, 4, "none", head), settings).double()


def batch(n: int = 6, stage: str = "contrast") -> Views:
    v1, v2 = (torch.randn(n, 4, 1, 1, generator=seeded(s), dtype=torch.float64) for s in (1, 2))
    return Views(v1, v2, torch.arange(n) % 3, Progress(stage=stage))


def test_the_weights_worked_out_by_hand() -> None:
    t = smooth_targets(torch.tensor([0, 1]), 3, 0.2, "others")
    torch.testing.assert_close(t, torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]))
    half = 0.5 * t[0] + 0.5 * t[1]
    assert float(F.cosine_similarity(t[0], t[1], dim=0)) == pytest.approx(0.17 / 0.66, abs=1e-6)
    assert float(F.cosine_similarity(t[0], half, dim=0)) == pytest.approx(0.7930, abs=5e-5)
    for classes, eps in itertools.product((2, 3, 20), (0.1, 0.4)):
        a, b = 1 - eps, eps / (classes - 1)
        one, other = smooth_targets(torch.tensor([0, 1]), classes, eps, "others").double()
        wanted = (2 * a * b + (classes - 2) * b**2) / (a**2 + (classes - 1) * b**2)
        assert float(F.cosine_similarity(one, other, dim=0)) == pytest.approx(wanted, abs=1e-6)


def contrast(method: ConOSR, z: Tensor) -> Tensor:
    """What the method contrasts, without another power iteration."""
    method.eval()
    with torch.no_grad():
        u: Tensor = F.normalize(method.contrast(z), dim=1)
    return u


def test_it_is_the_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conosr, "draw_mix", lambda alpha, generator: MIX)
    method, views = small_method(), batch()
    found = method.step(views, seeded())["loss"]
    order = torch.randperm(6, generator=seeded())
    mixes = [MIX * v + (1 - MIX) * v[order] for v in (views.v1, views.v2)]
    clean = smooth_targets(views.labels, 3, 0.2, "others").double()
    mixed = MIX * clean + (1 - MIX) * clean[order]
    u = contrast(method, torch.cat([views.v1, views.v2, *mixes]).flatten(1))
    wanted = reference.soft_supcon(u, torch.cat([clean, clean, mixed, mixed]), 0.1)
    assert float(found) == pytest.approx(float(wanted), rel=1e-5)  # labels are float32


def test_without_smoothing_and_mixing_it_is_supcon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conosr, "draw_mix", lambda alpha, generator: 1.0)
    method, views = small_method(contrast_smoothing=0.0), batch()
    found = method.step(views, seeded())["loss"]
    u = contrast(method, torch.cat([views.v1, views.v2, views.v1, views.v2]).flatten(1))
    assert float(found) == pytest.approx(float(supcon(u, views.labels.repeat(4), 0.1, "all")), rel=1e-9)


def test_the_second_stage_is_smoothed_cross_entropy() -> None:
    method, views = small_method(head_smoothing=0.3), batch(stage="classify")
    found = float(method.step(views, seeded())["loss"])
    method.eval()
    log_p = method.logits(views.v1.flatten(1)).log_softmax(1)
    wanted = -(0.7 * log_p.gather(1, views.labels[:, None]).sum() / 6)
    for k in range(3):
        wanted = wanted - 0.15 * log_p[views.labels != k, k].sum() / 6
    assert found == pytest.approx(wanted.item(), rel=1e-6)
    assert method.contrast.bias.grad is None


def test_the_encoder_rests_while_the_head_learns() -> None:
    states: list[dict[str, Tensor]] = []

    def watch(trained: session.Trained, total: int) -> None:
        states.append({name: value.clone() for name, value in trained.network.state_dict().items()})

    recipe = tiny_recipe(method="conosr", projection="none", head_share=0.5, head_lr=0.01)
    trained = train(tiny_images(8), recipe, watch=watch)
    parts = {part: [n for n in states[0] if n.startswith(part)] for part in ("encoder.", "classifier.")}
    for name in parts["encoder."]:  # BatchNorm's statistics included
        assert torch.equal(states[2][name], states[5][name]), name
    assert any(not torch.equal(states[0][name], states[2][name]) for name in parts["encoder."])
    for name in parts["classifier."]:  # spectral norm's vectors included
        assert torch.equal(states[0][name], states[2][name]), name
        assert not torch.equal(states[2][name], states[5][name]), name
    assert not any("contrast" in name for name in trained.network.state_dict())


def test_spectral_norms_are_one_and_survive_a_file() -> None:
    torch.manual_seed(0)
    head = MLPHead(8, 3, hidden=6, spectral=True)
    for _ in range(50):
        head(torch.zeros(1, 8))
    head.eval()
    for layer in (head.hidden, head.out):
        assert torch.linalg.matrix_norm(layer.weight, 2).item() == pytest.approx(1, abs=1e-3)
    described = head.describe()
    assert described == {"kind": "mlp", "classes": 3, "hidden": 6, "spectral": True}
    with torch.device("meta"):
        again = build_head(described, dim=8)
    again.load_state_dict(head.state_dict(), assign=True)
    z = torch.randn(4, 8)
    assert torch.equal(again.eval()(z), head(z))
    plain = build_head({"kind": "mlp", "classes": 3, "hidden": 6}, dim=8)
    assert sorted(plain.state_dict()) == ["hidden.bias", "hidden.weight", "out.bias", "out.weight"]


def test_the_network_it_describes_is_built_without_it() -> None:
    plain = NetworkSpec("conv7_16", "small", 3, 16, "none")
    spec = ConOSR.describe_network(plain, ConOSRSettings(), load_recipe("cpu/conosr-cifar10").model, 4)
    network = NetworkSpec.from_description(spec.describe()).build()
    assert isinstance(network.classifier, MLPHead)
    assert network.eval().answer(torch.zeros(2, 3, 16, 16)).logits.shape == (2, 4)  # type: ignore[union-attr]


def test_one_class_is_refused() -> None:
    images = ImageSet(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), ("cat",))
    with pytest.raises(UserError, match=r"method conosr .* at least two"):
        small_method().check_images(images)


def test_the_recipes_are_there() -> None:
    recipe = load_recipe("cpu/conosr-cifar10")
    assert (recipe.method, recipe.model.projection, recipe.training.max_steps) == ("conosr", "none", 1800)
    printed = load_recipe("paper/conosr-cifar10").flat()
    assert (printed["epochs"], printed["contrast_smoothing"], printed["head_lr"]) == (620, 0.2, 1e-4)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"contrast_temperature": 0.0}, "contrast_temperature must be positive"),
        ({"mix_alpha": -1.0}, "mix_alpha must be positive"),
        ({"contrast_smoothing": 1.0}, "contrast_smoothing must lie in"),
        ({"head_hidden": 0}, "head_hidden must be at least 1"),
        ({"head_share": 0.0}, "head_share must lie between 0 and 1"),
    ],
)
def test_wrong_settings_are_refused(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        ConOSRSettings(**fields)  # type: ignore[arg-type]
