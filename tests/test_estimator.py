"""The scikit-learn face: every kind of input, and the company of other estimators."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn
from torch.utils.data import Dataset, Subset

import gradmix
from gradmix import OpenSetClassifier
from gradmix.errors import UserError
from tests.training.tiny import CLASSES, FIELDS, SIDE, tiny_images

TINY: dict[str, Any] = FIELDS | {"stem": "half", "holdout": 0.25}
FROZEN: dict[str, Any] = {
    "image_size": SIDE,
    "encoder": "resnet8_16",
    "holdout": 0.25,
    "normalize": "half",
    "whiten": False,  # the features as they are
    "train_head": False,
}


def tiny(**settings: Any) -> OpenSetClassifier:
    return OpenSetClassifier(**{"false_reject": 0.2, "overrides": TINY} | settings)


def quick(**settings: Any) -> OpenSetClassifier:
    """Trains nothing; its encoder is random, but always the same."""
    return OpenSetClassifier("frozen", **{"false_reject": 0.2, "overrides": FROZEN} | settings)


def arrays(each: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(N, H, W, C) and class names."""
    images = tiny_images(each, seed=seed)
    names = np.asarray(CLASSES)[images.labels.numpy()]
    return images.images[:].permute(0, 2, 3, 1).numpy(), names


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    pictures, names = arrays()
    for i, (picture, name) in enumerate(zip(pictures, names, strict=True)):
        (root / name).mkdir(exist_ok=True)
        Image.fromarray(picture).save(root / name / f"{i:02d}.png")
    return root


@pytest.fixture(scope="module")
def fitted() -> OpenSetClassifier:
    return tiny().fit(*arrays())


pytestmark = pytest.mark.filterwarnings("ignore:recipe frozen without trained weights")


def test_five_lines(folder: Path, tmp_path: Path) -> None:
    clf = tiny().fit(folder)
    assert clf.known_classes_.tolist() == list(CLASSES)
    answers = clf.predict(folder / "bar")
    assert set(answers) <= {*CLASSES, "unknown"}
    assert 0 <= clf.score(folder) <= 1
    assert len(clf.explain(folder / "bar")) == 12
    crosses = tiny_images(3, ("cross",))
    assert clf.enroll(crosses, name="cross").known_classes_.tolist() == [*CLASSES, "cross"]
    clf.save(tmp_path / "model")
    again = OpenSetClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict(folder), clf.predict(folder))
    assert np.array_equal(again.score_samples(folder), clf.score_samples(folder))
    assert gradmix.load(tmp_path / "model").class_names == (*CLASSES, "cross")
    assert clf.forget("cross").known_classes_.tolist() == list(CLASSES)


class Pairs(Dataset[Any]):
    """As torchvision's data sets are: PIL images and whole numbers, and the names beside."""

    def __init__(self, kind: str, named: bool = True) -> None:
        self.images, self.kind = tiny_images(12), kind
        if named:
            self.classes = list(CLASSES)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        pixels = self.images.images[i]
        if self.kind == "pil":
            pixels = Image.fromarray(pixels.permute(1, 2, 0).numpy())
        elif self.kind == "float":
            pixels = pixels / 255
        return pixels, int(self.images.labels[i])


def test_every_kind_of_input_gives_the_same_model(folder: Path) -> None:
    pictures, names = arrays()
    expected = quick().fit(pictures, names)
    scores = expected.score_samples(pictures)
    files = np.asarray(sorted(str(path) for path in folder.rglob("*.png")))
    labels = np.asarray([Path(file).parent.name for file in files])
    given: list[tuple[Any, Any]] = [
        (folder, None),
        (str(folder), None),
        (files, labels),
        (list(files), list(labels)),
        (tiny_images(12), None),
        (torch.from_numpy(pictures).permute(0, 3, 1, 2), names),
        (Pairs("pil"), None),
        (Pairs("float"), None),
        (Pairs("uint8"), None),
    ]
    for x, y in given:
        clf = quick().fit(x, y)
        assert clf.known_classes_.tolist() == list(CLASSES)
        assert np.array_equal(clf.score_samples(pictures), scores)
        assert np.array_equal(clf.score_samples(x), scores)
    grey = quick().fit(pictures[..., 0], names)  # (N, H, W)
    assert grey.predict(pictures[..., 0]).shape == (36,)


def test_numbers_stay_numbers(tmp_path: Path) -> None:
    pictures, names = arrays()
    y = np.asarray([{"bar": 7, "disc": 3, "square": 20}[name] for name in names])
    clf = quick().fit(pictures, y)
    assert clf.known_classes_.tolist() == [3, 7, 20]
    assert clf.unknown_label_ == -1
    assert clf.predict(pictures).dtype.kind == "i"
    assert set(clf.predict(pictures)) <= {3, 7, 20, -1}
    clf.enroll(tiny_images(2, ("cross",)), name=99)
    loaded = OpenSetClassifier.load(clf.save(tmp_path / "m.safetensors"))
    assert loaded.known_classes_.tolist() == [3, 7, 20, 99]
    assert np.array_equal(loaded.predict(pictures), clf.predict(pictures))
    assert quick().fit(Pairs("pil", named=False)).known_classes_.tolist() == [0, 1, 2]


def test_classes_stay_in_step_with_the_recognizer() -> None:
    """Whatever type a class is named by, labels come out under their own names."""
    pictures, names = arrays()
    text = quick().fit(pictures, np.asarray([str(CLASSES.index(name)) for name in names]))
    assert text.forget(1).known_classes_.tolist() == ["0", "2"]
    numbers = quick().fit(pictures, [CLASSES.index(name) for name in names])
    assert numbers.forget("1").known_classes_.tolist() == [0, 2]
    crosses = tiny_images(2, ("cross",))
    floats = quick().fit(pictures, [float(CLASSES.index(name)) for name in names])
    assert floats.enroll(crosses, name=2, add=True).known_classes_.tolist() == [0.0, 1.0, 2.0]
    assert floats.enroll(crosses, name=7).forget(2).known_classes_.tolist() == [0.0, 1.0, 7.0]
    for clf in (text, numbers, floats):
        assert len(clf.known_classes_) == len(clf.recognizer_.class_names)


def test_data_sets_without_some_of_the_classes() -> None:
    pairs = Pairs("uint8", named=False)
    some = Subset(pairs, [i for i in range(36) if pairs[i][1] != 1])
    assert quick(false_reject=0.5).fit(some).known_classes_.tolist() == [0, 2]
    named = Pairs("uint8")
    named.images = named.images.select((named.images.labels > 0).nonzero()[:, 0])
    clf = quick(false_reject=0.5).fit(named)
    assert clf.known_classes_.tolist() == list(CLASSES[1:])
    assert 0 <= clf.score(named) <= 1
    named.classes = ["bar", "disc"]
    with pytest.raises(UserError, match="label 2 of the data set has no name: it names 2 classes"):
        quick().fit(named)


def test_shares_agree_with_the_answers(fitted: OpenSetClassifier) -> None:
    images = tiny_images(10, (*CLASSES, "cross"), seed=4)
    shares, answers = fitted.predict_proba(images), fitted.predict(images)
    assert shares.shape == (40, 4)
    np.testing.assert_allclose(shares.sum(1), 1)
    assert (shares >= 0).all()
    assert np.array_equal(fitted.classes_[shares.argmax(1)], answers)
    assert "unknown" in answers
    decision = fitted.decision_function(images)
    assert np.array_equal(fitted.classes_[decision.argmax(1)], answers)
    weights = np.exp(decision)
    np.testing.assert_allclose(weights / weights.sum(1, keepdims=True), shares, rtol=1e-9)
    assert np.array_equal(fitted.score_samples(images) < fitted.threshold_, answers == "unknown")


def test_works_with_the_rest_of_scikit_learn() -> None:
    pictures, names = arrays(16)
    scores = cross_val_score(quick(), pictures, names, cv=2, error_score="raise")
    assert scores.shape == (2,)
    turned = make_pipeline(FunctionTransformer(lambda x: x[:, ::-1]), quick()).fit(pictures, names)
    assert turned.predict(pictures).shape == (48,)
    assert set(turned.named_steps) == {"functiontransformer", "opensetclassifier"}


def test_clones_and_parameters(fitted: OpenSetClassifier) -> None:
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(arrays()[0])
    copy.set_params(random_state=3, recipe="frozen", overrides=FROZEN)
    assert copy.fit(*arrays()).recognizer_.recipe["seed"] == 3


def test_pickles(fitted: OpenSetClassifier) -> None:
    pictures, _ = arrays(3, seed=5)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict(pictures), fitted.predict(pictures))


@pytest.mark.parametrize("method", ["ce", "ce+ssl", "moco", "frozen"])
def test_every_method_by_name(method: str) -> None:
    fields = {k: v for k, v in TINY.items() if k != "layers"} | {"max_steps": 1}
    clf = OpenSetClassifier("small", method=method, false_reject=0.2, overrides=fields).fit(*arrays())
    assert clf.recognizer_.recipe["method"] == method


def test_per_class_and_false_reject_reach_the_threshold() -> None:
    clf = quick(false_reject=0.3, per_class=True).fit(*arrays())
    threshold = clf.recognizer_.threshold
    assert threshold.per_class
    assert threshold.false_reject == 0.3
    with pytest.warns(UserWarning, match="36 images cannot bound false rejects by 0.01"):
        lenient = quick(false_reject=0.01).fit(*arrays())
    one_less = quick(false_reject=0.12).fit(*arrays())  # 9 held out; 8 are needed
    with pytest.warns(UserWarning, match=r"6 images .* by 0.12 \(8 would do\): nothing is rejected"):
        one_less.forget("bar")
    assert "unknown" not in lenient.predict(arrays(4, seed=3)[0])
    assert (lenient.predict_proba(arrays()[0])[:, -1] == 0).all()


def test_init_starts_from_weights(tmp_path: Path) -> None:
    from gradmix.models import ENCODERS

    torch.manual_seed(1)
    encoder = ENCODERS["resnet8_16"](3, "small")
    torch.save(encoder.state_dict(), tmp_path / "w.pth")
    clf = quick(init=str(tmp_path / "w.pth")).fit(*arrays())
    weight = clf.recognizer_.network.encoder.state_dict()["conv1.weight"]
    assert torch.equal(weight, encoder.state_dict()["conv1.weight"])
    (tmp_path / "w.pth").unlink()
    loaded = OpenSetClassifier.load(clf.save(tmp_path / "m"))  # frozen: no projection, whole in its file
    assert np.array_equal(loaded.predict(arrays()[0]), clf.predict(arrays()[0]))


class Foreign(nn.Module):
    """Like torchvision's ResNet: stages, avgpool, fc."""

    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Conv2d(8, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU())
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(12, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc(self.avgpool(self.layer2(self.layer1(x))).flatten(1))
        return y


@pytest.mark.parametrize("recipe", ["frozen", "small"])
def test_any_module_can_be_the_backbone(recipe: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Foreign()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    fields = {"image_size": SIDE, "holdout": 0.25, "max_steps": 2, "batch_size": 8}
    clf = OpenSetClassifier(
        recipe, backbone=module, backbone_layer="avgpool", overrides=fields, false_reject=0.2
    ).fit(*arrays())
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    encoder = clf.recognizer_.network.encoder
    assert encoder.dim == 12
    assert list(encoder.layer_names)[-1].startswith("layer2")
    trained = encoder.module.layer1[0].weight
    assert torch.equal(trained, before["layer1.0.weight"]) == (recipe == "frozen")
    pictures, _ = arrays(3, seed=6)
    assert clf.explain(pictures)[0].heat.shape == (SIDE, SIDE)
    file = clf.save(tmp_path / "m.safetensors")
    with pytest.raises(UserError, match=r"made with a backbone of the user's own .*Foreign.*with backbone="):
        OpenSetClassifier.load(file)
    loaded = OpenSetClassifier.load(file, backbone=Foreign())  # its weights come from the file
    assert np.array_equal(loaded.score_samples(pictures), clf.score_samples(pictures))
    assert "backbone" not in gradmix.models.ENCODERS
    clone(clf).fit(*arrays())


def test_backbones_that_do_not_fit() -> None:
    with pytest.raises(UserError, match="no layer of the backbone 'avgpol'; did you mean 'avgpool'"):
        quick(backbone=Foreign(), backbone_layer="avgpol").fit(*arrays())
    with pytest.raises(UserError, match="cannot take images of 3 x 16 x 16"):
        quick(backbone=nn.Conv2d(5, 2, 1)).fit(*arrays())
    with pytest.raises(UserError, match="give one of the two"):
        quick(backbone=Foreign(), init="w.pth").fit(*arrays())


def test_timms_way_and_tokens() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch, self.head = nn.Conv2d(3, 6, 4, 4), nn.Linear(6, 10)

        def forward_features(self, x: torch.Tensor) -> torch.Tensor:
            return self.patch(x).flatten(2).transpose(1, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.head(self.forward_features(x).mean(1))
            return y

    clf = quick(backbone=Tokens()).fit(*arrays())
    assert clf.recognizer_.network.feature_dim == 6


def test_mistakes_are_named() -> None:
    pictures, names = arrays(4)
    with pytest.raises(UserError, match=r"shape \(12, 768\); flattened ones have lost"):
        quick().fit(pictures.reshape(12, -1), names)
    with pytest.raises(UserError, match="scale fractions by 255"):
        quick().fit(pictures / 255, names)
    with pytest.raises(UserError, match="y is missing"):
        quick().fit(pictures)
    with pytest.raises(UserError, match="12 images but y of shape"):
        quick().fit(pictures, names[:5])
    with pytest.raises(UserError, match=r"only one class \(a\), and method ce"):
        OpenSetClassifier("small", method="ce", epochs=1).fit(pictures, ["a"] * 12)
    with pytest.raises(UserError, match="no image of a known class"):
        quick().fit(pictures, ["unknown"] * 12)
    with pytest.raises(UserError, match="not a continuous target"):
        quick().fit(pictures, np.linspace(0, 1, 12))
    with pytest.raises(UserError, match="no recipe 'smal'; did you mean 'small'"):
        OpenSetClassifier("smal").fit(pictures, names)
    with pytest.raises(UserError, match="no method 'gradmx'; did you mean 'gradmix'"):
        tiny(method="gradmx").fit(pictures, names)
    clf = quick(false_reject=0.5).fit(pictures, names)
    with pytest.raises(UserError, match="a class of this model is text"):
        clf.enroll(pictures[:2], name=4)
    with pytest.raises(UserError, match="no class 'baar'; did you mean 'bar'"):
        clf.forget("baar")
    with pytest.raises(UserError, match="no model at"):
        OpenSetClassifier.load("nowhere")
