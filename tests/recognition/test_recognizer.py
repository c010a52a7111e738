from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.recognition import Recognizer, build_recognizer, extract, fit, hold_out, load, model_file, save
from gradmix.training import train
from tests.training.tiny import CLASSES, SIDE, tiny_images, tiny_recipe


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return fit(tiny_images(20), tiny_recipe(epochs=3, false_reject=0.1))


@pytest.fixture(scope="module")
def new_images() -> ImageSet:
    return tiny_images(10, (*CLASSES, "cross"), seed=5)


@pytest.fixture
def saved(recognizer: Recognizer, tmp_path: Path) -> Path:
    save(recognizer, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_a_loaded_model_predicts_to_the_same_bits(
    recognizer: Recognizer, new_images: ImageSet, saved: Path
) -> None:
    for where in (saved, saved.parent, str(saved)):  # the file, or the folder that holds it
        loaded = load(where)
        ours, theirs = recognizer.predict(new_images), loaded.predict(new_images)
        assert torch.equal(ours.score, theirs.score)
        assert torch.equal(ours.label, theirs.label)
        assert torch.equal(ours.nearest, theirs.nearest)
        assert loaded.class_names == recognizer.class_names
        assert loaded.threshold == recognizer.threshold
        assert loaded.normalizer == recognizer.normalizer
    save(load(saved), saved.parent / "again.safetensors")
    assert content(saved.parent / "again.safetensors") == content(saved)


def content(file: Path) -> dict[str, bytes]:
    with safe_open(file, framework="pt") as f:
        return {name: f.get_tensor(name).numpy().tobytes() for name in f.keys()}  # noqa: SIM118


@pytest.mark.parametrize("method", ["ce", "ce+ssl"])
def test_networks_with_a_classifier_are_saved_whole(method: str, tmp_path: Path) -> None:
    recognizer = fit(tiny_images(8), tiny_recipe(method=method, max_steps=2))
    save(recognizer, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    images = tiny_images(3, seed=9)
    ours, theirs = recognizer.outputs(images), loaded.outputs(images)
    assert ours.logits is not None
    assert theirs.logits is not None
    assert torch.equal(ours.logits, theirs.logits)
    assert recognizer.heat_maps(images).shape == (9, SIDE, SIDE)


def test_predictions_have_names(recognizer: Recognizer, new_images: ImageSet) -> None:
    found = recognizer.predict(new_images)
    assert len(found.names()) == len(new_images)
    assert set(found.names()) <= {*CLASSES, "unknown"}
    for name, label, near in zip(found.names(), found.label.tolist(), found.nearest.tolist(), strict=True):
        assert name == ("unknown" if label == -1 else CLASSES[near])
    accepted = found.score >= recognizer.threshold.value
    assert torch.equal(accepted, found.label >= 0)


def test_images_of_any_size_and_colour_are_fitted(recognizer: Recognizer) -> None:
    grey = ImageSet(torch.zeros(2, 1, 40, 30, dtype=torch.uint8), torch.tensor([-1, -1]), ())
    assert len(recognizer.predict(grey).names()) == 2


def test_no_images_no_answers(recognizer: Recognizer) -> None:
    nothing = ImageSet(torch.zeros(0, 3, SIDE, SIDE, dtype=torch.uint8), torch.zeros(0, dtype=torch.long), ())
    assert recognizer.predict(nothing).names() == []


def test_extract_does_not_depend_on_the_batch_and_keeps_the_mode(recognizer: Recognizer) -> None:
    images = tiny_images(5, seed=2)
    whole = extract(recognizer.network, recognizer.normalizer, images).features
    recognizer.network.train()
    parts = extract(recognizer.network, recognizer.normalizer, images, batch_size=4).features
    assert recognizer.network.training
    recognizer.network.eval()
    torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-5)


def test_heat_maps_fit_the_image_and_reach_from_0_to_1(recognizer: Recognizer, new_images: ImageSet) -> None:
    maps = recognizer.heat_maps(new_images)
    assert maps.shape == (len(new_images), SIDE, SIDE)
    assert float(maps.min()) >= 0
    torch.testing.assert_close(maps.amax((1, 2)), torch.ones(len(new_images)))


def test_heat_maps_leave_no_gradient_behind(saved: Path) -> None:
    loaded = load(saved)
    loaded.heat_maps(tiny_images(1))
    assert all(p.grad is None for p in loaded.network.parameters())


def test_weights_to_start_from_are_not_read_again(tmp_path: Path) -> None:
    """A model is whole in its file: what training started from may be gone when it is loaded."""
    from gradmix.models import ENCODERS

    start = tmp_path / "start.pth"
    torch.save(ENCODERS["resnet10_16"](3, "small").state_dict(), start)
    recognizer = fit(tiny_images(8), tiny_recipe(max_steps=1, init=str(start), stem="auto"))
    save(recognizer, tmp_path / "m.safetensors")
    start.unlink()
    loaded = load(tmp_path / "m.safetensors")
    assert not loaded.network.training
    assert str(start) not in json.dumps(header_of(tmp_path / "m.safetensors"))  # a name of this machine
    images = tiny_images(2)
    assert torch.equal(loaded.predict(images).score, recognizer.predict(images).score)


class Bomb:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.trace,))


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "pickle"])
def test_damaged_files_are_refused(damage: str, saved: Path) -> None:
    trace = saved.parent / "executed"
    whole = saved.read_bytes()
    saved.write_bytes(
        {
            "truncated": whole[: len(whole) // 2],
            "empty": b"",
            "text": b"hello",
            "pickle": pickle.dumps(Bomb(trace)),
        }[damage]
    )
    with pytest.raises(UserError, match="truncated or not a model file") as error:
        load(saved)
    assert "\n" not in str(error.value)
    assert not trace.exists()


def rewrite(file: Path, header: dict[str, str], **tensors: torch.Tensor) -> None:
    with safe_open(file, framework="pt") as f:
        found = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118
    save_file(found | tensors, file, metadata=header)


def header_of(file: Path) -> dict[str, object]:
    with safe_open(file, framework="pt") as f:
        found = dict(json.loads(f.metadata()["gradmix"]))
    del found["sha256"]  # of this content
    return found


def test_foreign_files_are_refused(saved: Path) -> None:
    about = header_of(saved)
    save_file({"a": torch.zeros(1)}, saved.parent / "other.safetensors")
    with pytest.raises(UserError, match="published weights go into --init"):
        load(saved.parent / "other.safetensors")
    for header, message in [
        (
            json.dumps(about | {"format": 99}),
            "model format 99, of a newer gradmix .* reads up to 2: pip install --upgrade gradmix",
        ),
        ("{", "header is damaged"),
        ("[1]", "header is damaged"),
        (json.dumps({"format": 1}), "not a whole gradmix model"),
        (json.dumps(about | {"class_names": ["a"]}), "not a whole gradmix model|label"),
        (json.dumps(about | {"format": 0}), "model format 0; this version of gradmix reads up to 2"),
        (json.dumps(about | {"decision": about["decision"] | {"threshold": 3}}), "not a whole gradmix model"),
        (json.dumps(about | {"decision": about["decision"] | {"detector": "mpls"}}), "did you mean 'mls'"),
        (json.dumps(about | {"decision": about["decision"] | {"class_bias": [0.0]}}), "1 class biases but 3"),
        (json.dumps(about | {"normalizer": {"mean": 1, "std": 2}}), "not a whole gradmix model"),
        (json.dumps(about | {"network": {"encoder": "resnet18"}}), "description of the network is not one"),
        (json.dumps(about | {"network": about["network"] | {"encoder": "vit"}}), "needs the encoder 'vit'"),
        (json.dumps(about | {"network": about["network"] | {"feature_dim": 10**9}}), "is not a whole"),
    ]:
        rewrite(saved, {"gradmix": header})
        with pytest.raises(UserError, match=message) as error:
            load(saved)
        assert "\n" not in str(error.value)


def test_where_there_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no model at .*; train one with"):
        load(tmp_path)
    (tmp_path / "recipe.yaml").write_text("")
    with pytest.raises(UserError, match="not finished; go on with: gradmix train --resume "):
        load(tmp_path)


def test_a_threshold_that_rejects_nothing_survives_its_file(tmp_path: Path) -> None:
    recognizer = fit(tiny_images(4), tiny_recipe(max_steps=1, false_reject=0.01))
    assert not recognizer.threshold.guaranteed
    save(recognizer, tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").threshold == recognizer.threshold


def test_a_full_disk_keeps_the_previous_model(
    recognizer: Recognizer, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()

    def no_space(tensors: object, part: Path, metadata: object) -> None:
        part.write_bytes(b"some of it")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(model_file, "save_file", no_space)
    with pytest.raises(UserError, match=r"could not write .*: I/O error: No space left on device"):
        save(recognizer, saved)
    assert saved.read_bytes() == before
    assert [file.name for file in saved.parent.iterdir()] == [saved.name]


def test_hold_out_takes_its_share_of_every_class() -> None:
    images = tiny_images(20)
    recipe = tiny_recipe(holdout=0.25)
    train_part, back = hold_out(images, recipe)
    assert back is not None
    assert train_part.counts() == dict.fromkeys(CLASSES, 15)
    assert back.counts() == dict.fromkeys(CLASSES, 5)
    pixels = {image.numpy().tobytes() for image in train_part.images}
    assert not pixels & {image.numpy().tobytes() for image in back.images}
    again, _ = hold_out(images, recipe)
    assert again.content_hash() == train_part.content_hash()
    other, _ = hold_out(images, tiny_recipe(holdout=0.25, seed=1))
    assert other.content_hash() != train_part.content_hash()
    everything, nothing = hold_out(images, tiny_recipe())
    assert nothing is None
    assert everything.content_hash() == images.content_hash()


def test_hold_out_counts_within_the_limit() -> None:
    train_part, back = hold_out(tiny_images(20), tiny_recipe(holdout=0.5, limit_per_class=8))
    assert back is not None
    assert train_part.counts() == back.counts() == dict.fromkeys(CLASSES, 4)


def test_a_class_with_fewer_than_k_images_is_refused() -> None:
    images = tiny_images(4)
    with pytest.raises(
        UserError, match="class 'bar' has 2 training images after 2 were held out, fewer than"
    ):
        hold_out(images, tiny_recipe(holdout=0.5))
    few = images.select([*range(8), 8, 9])
    with pytest.raises(UserError, match="class 'square' has 2 training images, fewer than k = 3"):
        hold_out(few, tiny_recipe())
    assert len(hold_out(few, tiny_recipe(k=2))[0]) == 10


def test_the_threshold_keeps_its_promise_on_held_out_images() -> None:
    images, recipe = tiny_images(40), tiny_recipe(max_steps=4, holdout=0.5, false_reject=0.2)
    train_part, back = hold_out(images, recipe)
    assert back is not None
    recognizer = build_recognizer(train(train_part, recipe), train_part, back, recipe)
    rejected = (recognizer.predict(back).label < 0).float().mean()
    assert 0.1 < float(rejected) <= 0.2
    assert recognizer.threshold.n == 60
    fresh = recognizer.predict(tiny_images(100, seed=77))
    assert float((fresh.label < 0).float().mean()) < 0.4  # exchangeable, but only 60 were held out


def test_features_are_directions_where_only_directions_were_trained() -> None:
    """Else detectors that measure distances would see lengths that no objective shaped."""
    contrastive = fit(tiny_images(), tiny_recipe(max_steps=1)).outputs(tiny_images()).features
    assert torch.allclose(contrastive.norm(dim=1), torch.ones(len(contrastive)), atol=1e-5)
    classifier = fit(tiny_images(), tiny_recipe(method="ce", max_steps=1)).outputs(tiny_images()).features
    assert not torch.allclose(classifier.norm(dim=1), torch.ones(len(classifier)), atol=1e-2)


def test_reads_files_and_folders_as_the_network_wants_them(tmp_path: Path) -> None:
    from PIL import Image

    recognizer = fit(tiny_images(), tiny_recipe(max_steps=1))
    (tmp_path / "below").mkdir()
    for name in ("a.png", "below/b.png"):
        Image.new("L", (40, 30), 200).save(tmp_path / name)
    images = recognizer.read(tmp_path, tmp_path / "a.png")
    assert images.images.shape == (3, 3, SIDE, SIDE)
    assert [Path(source).name for source in images.sources] == ["a.png", "b.png", "a.png"]
    assert len(recognizer.predict(images).names()) == 3
