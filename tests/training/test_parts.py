"""Batches, seeds, hardware, signals: what the loop is made of."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from gradmix.errors import UserError
from gradmix.methods import METHODS, Context, Method, Views
from gradmix.recipe import TrainingSettings
from gradmix.training import RunFolder, hardware, make_recipe, session, train
from gradmix.training.hardware import check_compile, check_precision, make_embedder, pick_device
from gradmix.training.schedule import make_optimizer, set_learning_rate
from gradmix.training.seeds import generator_for
from gradmix.training.session import _batches, build_network
from gradmix.training.stop import stop_requests
from tests.training.tiny import tiny_images, tiny_recipe


def test_what_optimizers_are_told() -> None:
    weights = list(torch.nn.Linear(2, 2).parameters())
    plain = make_optimizer(weights, TrainingSettings(optimizer="sgd", momentum=0.8, nesterov=False))
    assert (plain.param_groups[0]["momentum"], plain.param_groups[0]["nesterov"]) == (0.8, False)
    still = make_optimizer(weights, TrainingSettings(optimizer="sgd", momentum=0.0))
    assert (still.param_groups[0]["momentum"], still.param_groups[0]["nesterov"]) == (0.0, False)
    for name in ("adam", "adamw"):
        made = make_optimizer(weights, TrainingSettings(optimizer=name, betas=(0.5, 0.99)))
        assert made.param_groups[0]["betas"] == (0.5, 0.99)
    with pytest.raises(UserError, match="nothing to train"):
        make_optimizer([], TrainingSettings())


@pytest.mark.parametrize(
    ("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)]
)
def test_optimizers(name: str, kind: type[torch.optim.Optimizer]) -> None:
    module = torch.nn.Linear(2, 2)
    optimizer = make_optimizer(
        list(module.parameters()), TrainingSettings(optimizer=name, lr=0.3, weight_decay=0.02)
    )
    assert type(optimizer) is kind
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"], len(group["params"])) == (0.3, 0.02, 2)
    if name == "sgd":
        assert (group["momentum"], group["nesterov"]) == (0.9, True)
    set_learning_rate(optimizer, 0.7)
    assert group["lr"] == 0.7


def test_each_epoch_is_a_permutation_without_its_incomplete_batch() -> None:
    batches = list(_batches(n=23, batch_size=5, seed=1, step=0, total=12))  # 4 a epoch, 3 images dropped
    assert [len(batch) for batch in batches] == [5] * 12
    epochs = [torch.cat(batches[i : i + 4]).tolist() for i in (0, 4, 8)]
    for epoch in epochs:
        assert len(set(epoch)) == 20
        assert set(epoch) <= set(range(23))
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert set(range(23)) == {i for epoch in epochs for i in epoch}  # other images are dropped each time
    later = list(_batches(n=23, batch_size=5, seed=1, step=6, total=12))
    assert all(torch.equal(a, b) for a, b in zip(batches[6:], later, strict=True))


def test_a_batch_larger_than_the_set_is_the_set() -> None:
    trained = train(tiny_images(4), tiny_recipe(batch_size=1000, epochs=3))
    assert trained.steps == 3


def test_max_steps_cuts_the_epochs_short() -> None:
    assert train(tiny_images(8), tiny_recipe(epochs=100, max_steps=2)).steps == 2


def test_the_views_are_as_small_as_the_recipe_says(monkeypatch: pytest.MonkeyPatch) -> None:
    sides: list[tuple[int, int]] = []
    kind = METHODS["gradmix"]
    step = kind.step

    def noting(self: Method, views: Views, *more: Any) -> dict[str, torch.Tensor]:
        sides.append((views.v1.shape[-1], views.v2.shape[-1]))
        return step(self, views, *more)

    monkeypatch.setattr(kind, "step", noting)
    train(tiny_images(8), tiny_recipe(start_size=8, grow_after=0.5, max_steps=4))
    assert sides == [(8, 8)] * 2 + [(16, 16)] * 2


def way_of_one_step(precision: str, clip_norm: float | None) -> float:
    """How far one step of SGD with learning rate 1 takes the weights."""
    recipe = tiny_recipe(
        optimizer="sgd", lr=1.0, warmup_steps=0, weight_decay=0.0, max_steps=1, clip_norm=clip_norm,
        precision=precision,
    )  # fmt: skip
    start = dict(build_network(recipe, 3).named_parameters())
    end = train(tiny_images(8), recipe).network.named_parameters()
    return float(torch.stack([(value - start[name]).detach().norm() for name, value in end]).norm())


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_gradients_are_clipped_in_their_own_scale(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """fp16 multiplies them by a large number, which must be gone before their norm is looked at."""
    monkeypatch.setattr(session, "check_precision", lambda precision, device: None)  # emulated, for the test
    # Small enough for the first step not to overflow; it would be left out.
    monkeypatch.setattr(torch.amp, "GradScaler", functools.partial(torch.amp.GradScaler, init_scale=64.0))
    free = way_of_one_step(precision, None)
    norm = free / 1.9  # Nesterov's first step goes 1 + 0.9 times the gradient
    assert norm > 0.1
    assert way_of_one_step(precision, norm / 8) == pytest.approx(free / 8, rel=1e-3)
    assert way_of_one_step(precision, 8 * norm) == pytest.approx(free, rel=1e-3)


def test_the_global_generator_neither_matters_nor_moves() -> None:
    recipe, images = tiny_recipe(max_steps=2), tiny_images(8)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = train(images, recipe).network.state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    other = train(images, recipe).network.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    reseeded = train(images, tiny_recipe(max_steps=2, seed=1)).network.state_dict()
    assert not torch.equal(one["projection.weight"], reseeded["projection.weight"])


def test_training_learns_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # TensorBoard is slow to import
    run = RunFolder.create(tmp_path / "run", tiny_recipe(epochs=8, log_every=4, method="ce", lr=0.01), {})
    network = train(tiny_images(8), run.recipe(), run).network
    assert not network.training
    assert network.classifier.out_features == 3
    losses = [row["loss"] for row in run.history()]
    assert losses[-1] < 0.5 * losses[0]


def test_generators_differ_by_seed_purpose_and_number() -> None:
    def draw(*key: object) -> float:
        return float(torch.rand((), generator=generator_for(*key)))

    keys = [(0, "step", 0), (0, "step", 1), (1, "step", 0), (0, "epoch", 0), (0, "step", 10)]
    assert len({draw(*key) for key in keys}) == len(keys)
    assert draw(*keys[0]) == draw(*keys[0])


def test_devices_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device("auto") == pick_device("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match="device cuda: this torch sees no CUDA device; use --device cpu"):
        pick_device("cuda:1")
    with pytest.raises(UserError, match="device mps: this machine has no Apple GPU"):
        pick_device("mps")
    with pytest.raises(UserError, match="no device 'cpu:x'"):
        pick_device("cpu:x")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto") == torch.device("cuda")


CPU = torch.device("cpu")


def test_precision_is_refused_where_it_would_be_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    check_precision("fp32", CPU)
    with pytest.raises(UserError, match="precision fp16: CPUs have no"):
        check_precision("fp16", CPU)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False}, raising=False)
    with pytest.raises(UserError, match="this CPU has no bf16 units"):
        check_precision("bf16", CPU)
    for unit in ("avx512_bf16", "amx_bf16", "bf16"):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda unit=unit: {unit: True}, raising=False)
        monkeypatch.setattr(hardware, "_survives_bf16", lambda: True)
        check_precision("bf16", CPU)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    monkeypatch.setattr(hardware, "_survives_bf16", lambda: False)
    with pytest.raises(UserError, match="announces AMX and ends the programs that use it"):
        check_precision("bf16", CPU)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: False)
    with pytest.raises(UserError, match="use fp16"):
        check_precision("bf16", torch.device("cuda"))


@pytest.mark.parametrize(("code", "survives"), [(0, True), (1, True), (-4, False)])
def test_bf16_is_tried_in_a_process_of_its_own(
    code: int, survives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.CompletedProcess([], code)
    monkeypatch.setattr(hardware.subprocess, "run", lambda *args, **options: ended)
    assert hardware._survives_bf16.__wrapped__() is survives


def test_bf16_trains_and_its_gradient_is_close_to_fp32s() -> None:
    """In a process of its own, without AMX: there are machines that announce it and cannot do it."""
    run = subprocess.run(
        [sys.executable, "-c", "from tests.training.test_parts import train_with_bf16; train_with_bf16()"],
        env=os.environ | {"ONEDNN_MAX_CPU_ISA": os.environ.get("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


def train_with_bf16() -> None:
    from gradmix.methods import GradMixMethod, Views

    torch.cpu.get_capabilities = lambda: {"avx512_bf16": True}
    # Without a mixer: a patch that lands elsewhere by a rounding of its map is another gradient.
    recipe = tiny_recipe(
        precision="bf16", max_steps=1, mixer="none", simclr_temperature=0.5, supcon_temperature=0.5
    )
    found = {}
    generator = torch.Generator().manual_seed(0)
    v1, v2 = torch.randn(2, 8, 3, 16, 16, generator=generator)
    for precision in ("fp32", "bf16"):
        network = build_network(recipe, 3)
        embed = make_embedder(network, CPU, precision)
        assert embed(v1).dtype == torch.float32
        method = GradMixMethod(network, recipe.objective, Context(call=lambda network, embed=embed: embed))
        method.step(Views(v1, v2, torch.arange(8) % 3), generator)
        found[precision] = torch.cat([p.grad.flatten() for p in network.parameters()])
        assert found[precision].dtype == torch.float32
    close = torch.cosine_similarity(found["fp32"], found["bf16"], dim=0)
    assert float(close) > 0.95  # bf16 has three digits
    assert not torch.equal(found["fp32"], found["bf16"])
    assert train(tiny_images(8), tiny_recipe(precision="bf16", max_steps=1)).steps == 1


def test_a_second_signal_acts_at_once_and_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_requests() as asked:
        assert not asked()
        signal.raise_signal(signal.SIGINT)
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_in_a_thread_there_is_nothing_to_handle() -> None:
    answers = []

    def work() -> None:
        with stop_requests() as asked:
            answers.append(asked())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert answers == [False]


def test_tensorboard_gets_the_history_if_it_is_there(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", tiny_recipe(max_steps=2), {})
    train(tiny_images(8), run.recipe(), run)
    assert list((run.path / "tensorboard").glob("events*"))
    (row,) = run.history()
    assert row.keys() >= {"step", "loss", "supcon", "simclr", "mixed", "lr", "epoch", "minutes"}
    assert row["epoch"] == pytest.approx(2 / 3)


@pytest.mark.slow
def test_a_compiled_network_trains_to_the_same_gradient_and_still_gives_maps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch's own cache hands out what was compiled for other instructions (ATEN_CPU_CAPABILITY).
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    fields = {"encoder": "resnet8_16", "stem": "half", "image_size": 16, "layers": ["conv4_2"]}
    # float64: the compiler adds up in another order, and float32 would show on which processor.
    v1, v2 = torch.randn(2, 8, 3, 16, 16, generator=torch.Generator().manual_seed(0)).double()

    def stepped(mixer: str, compiled: bool) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
        recipe = make_recipe(fields | {"mixer": mixer})
        network = build_network(recipe, 2).train().double()
        calls = functools.partial(
            make_embedder, device=torch.device("cpu"), precision="fp32", compiled=compiled
        )
        method = METHODS["gradmix"](network, recipe.objective, Context(call=calls))
        views = Views(v1, v2, torch.arange(8) % 2)
        assert method.step(views, torch.Generator().manual_seed(1))["mixed"] > 0
        return network.state_dict(), [p.grad for p in network.parameters() if p.grad is not None]

    # Not with GradMix: its patch is where a map is largest, and rounding decides between equals.
    torch.testing.assert_close(stepped("cutmix", compiled=True), stepped("cutmix", compiled=False))
    stepped("gradmix", compiled=True)


def test_compiling_without_a_compiler_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match="needs a C\\+\\+ compiler"):
        check_compile(torch.device("cpu"))
    with pytest.raises(UserError, match="several processes"):
        check_compile(torch.device("cpu"), processes=2)
