"""What a fitted classifier can do beside naming images."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gradmix import OpenSetClassifier, load
from gradmix.data import as_images
from gradmix.detection import control_false_discoveries
from gradmix.errors import UserError
from gradmix.evaluation import evaluate_open_set
from gradmix.recognition import Discovery
from tests.estimator.conftest import crosses
from tests.test_estimator import Foreign, Pairs, arrays, quick
from tests.training.tiny import CLASSES, SIDE, tiny_images

pytestmark = pytest.mark.filterwarnings("ignore:recipe frozen without trained weights")


# Evaluate


def test_evaluate_folders(fitted: OpenSetClassifier, folders: Path) -> None:
    result = fitted.evaluate(folders / "known", folders / "others")
    known, unknown = (
        as_images(folders / name, fitted.recognizer_.image_format) for name in ("whole", "others")
    )
    labels = torch.arange(3).repeat_interleave(8)
    expected = evaluate_open_set(
        fitted.recognizer_, replace(known, labels=labels, class_names=CLASSES), unknown
    )
    assert result.metrics == expected.metrics  # its test part, not train
    assert fitted.evaluate(folders / "whole", folders / "others").metrics == expected.metrics
    text = repr(result)
    assert text.startswith("OpenSetResult of 24 known and 12 unknown images, per cent\nknown accepted ")
    assert f"{100 * result.main['auroc']:.2f}" in text
    assert f"unknown rejected {100 * result.main['unknown_rejected']:.1f}" in text
    assert len(text.splitlines()) == 4


def test_a_folder_may_hold_the_unknown_images_too(
    fitted: OpenSetClassifier, folders: Path, tmp_path: Path
) -> None:
    """As for the command: folders named as a class are known, all others unknown."""
    (tmp_path / "mixed").mkdir()
    for name in CLASSES:
        (tmp_path / "mixed" / name).symlink_to(folders / "whole" / name)
    (tmp_path / "mixed" / "unknown").symlink_to(folders / "others")
    expected = fitted.evaluate(folders / "whole", folders / "others").metrics
    assert fitted.evaluate(tmp_path / "mixed").metrics == expected
    (tmp_path / "mixed" / "unknown").rename(tmp_path / "mixed" / "dog")
    assert fitted.evaluate(tmp_path / "mixed").metrics == expected
    (tmp_path / "divided" / "train").mkdir(parents=True)
    for name in CLASSES:
        (tmp_path / "divided" / "train" / name).symlink_to(folders / "known" / "train" / name)
    (tmp_path / "divided" / "test").symlink_to(tmp_path / "mixed")
    assert fitted.evaluate(str(tmp_path / "divided")).metrics == expected
    with pytest.raises(UserError, match=r"no unknown images.*or put a folder of them beside those"):
        fitted.evaluate(folders / "whole")


def test_evaluate_arrays_sets_and_detectors(fitted: OpenSetClassifier) -> None:
    pictures, names = arrays(8, seed=5)
    others = crosses().images[:].permute(0, 2, 3, 1).numpy()
    one = fitted.evaluate(pictures, others, y=names)
    split = fitted.evaluate(np.concatenate([others, pictures]), y=[*["unknown"] * 12, *names])
    assert split.metrics == one.metrics
    sets = fitted.evaluate(pictures, {"near": others, "far": others[::-1]}, y=names, detectors="nno")
    assert list(sets.sets) == ["near", "far"]
    assert set(sets.metrics) == {"knn", "nno"}
    assert "knn on far" in repr(sets)
    assert set(fitted.evaluate(pictures, others, y=names, detectors="all").metrics) > {"knn", "nno", "rmds"}
    assert fitted.evaluate(Pairs("pil"), others).main["closed_set_accuracy"] > 0.8
    some = names != "bar"  # not all classes need be there
    assert fitted.evaluate(pictures[some], others, y=names[some]).main["closed_set_accuracy"] > 0.8
    by_number = quick().fit(pictures, [CLASSES.index(name) for name in names])
    numbers = [2 - CLASSES.index(name) for name in names]
    assert by_number.evaluate(pictures, others, y=numbers).main["closed_set_accuracy"] < 0.5


def test_evaluate_refuses(fitted: OpenSetClassifier) -> None:
    pictures, names = arrays(8, seed=5)
    with pytest.raises(
        UserError, match=r"no unknown images to measure with; give some \(unknown=…\), or label them"
    ):
        fitted.evaluate(pictures, y=names)
    with pytest.raises(
        UserError, match=r"class 'dog' is not known to the model \(it knows: bar, disc, square\)"
    ):
        fitted.evaluate(pictures, crosses(), y=["dog"] * 24)
    with pytest.raises(UserError, match="an image cannot be known and unknown"):
        fitted.evaluate(pictures, pictures[:2], y=names)
    with pytest.raises(UserError, match="y is missing"):
        fitted.evaluate(pictures, crosses())
    with pytest.raises(UserError, match="no detector 'nnoo'"):
        fitted.evaluate(pictures, crosses(), y=names, detectors="nnoo")


# Calibrate


def test_calibrate(changeable: OpenSetClassifier, folders: Path) -> None:
    before = changeable.threshold_
    assert changeable.calibrate(false_reject=0.5) is changeable
    assert changeable.recognizer_.threshold.false_reject == 0.5
    assert changeable.threshold_ > before
    fresh = changeable.calibrate(folders / "fresh", false_reject=0.1).recognizer_.threshold
    assert (fresh.n, fresh.false_reject) == (30, 0.1)
    pictures, names = arrays(6, seed=9)
    assert changeable.calibrate(pictures, names, false_reject=0.2).recognizer_.threshold.n == 18
    per_class = changeable.calibrate(per_class=True)
    assert per_class.threshold_.shape == (3,)
    assert changeable.calibrate(detector="nno", per_class=False).recognizer_.decision.detector.name == "nno"
    assert "decides by nno" in repr(changeable)


def test_calibrate_refuses_and_changes_nothing(changeable: OpenSetClassifier) -> None:
    before = changeable.recognizer_
    with pytest.raises(UserError, match=r"12 images cannot bound false rejects by 0.01"):
        changeable.calibrate(false_reject=0.01)
    with pytest.raises(UserError, match="class 'dog' is not known"):
        changeable.calibrate(crosses().images[:], ["dog"] * 12)
    with pytest.raises(UserError, match="no detector 'nnoo'"):
        changeable.calibrate(detector="nnoo")
    assert changeable.recognizer_ is before


# Discover, export, save


def test_discover(fitted: OpenSetClassifier) -> None:
    pictures = torch.cat([tiny_images(4, seed=3).images[:], crosses(20).images[:]])
    found = fitted.discover(pictures, min_size=4)
    assert isinstance(found, Discovery)
    rejected = {*found.left_over, *(i for group in found.groups for i in group.members)}
    assert rejected == set(np.flatnonzero(fitted.predict(pictures) == "unknown"))
    members = pictures[list(found.groups[0].members)]
    quick_copy = quick().fit(*arrays(16)).enroll(members, name="cross")
    assert "cross" in quick_copy.predict(pictures)


def test_export(fitted: OpenSetClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is tested in tests/export; here, that it is asked for."""
    given: list[Any] = []
    monkeypatch.setattr("gradmix.export.export_model", lambda *words: given.append(words) or Path("there"))
    assert fitted.export("exported", "knn:sum") == Path("there")
    assert given == [(fitted.recognizer_, "exported", "knn:sum")]


def test_save_and_load_as_people_type_it(fitted: OpenSetClassifier, tmp_path: Path) -> None:
    pictures, _ = arrays(4, seed=3)
    fitted.save_pretrained(tmp_path / "model")
    again = OpenSetClassifier.from_pretrained(tmp_path / "model")
    assert np.array_equal(again.predict_proba(pictures), fitted.predict_proba(pictures))
    assert load(tmp_path / "model").class_names == CLASSES
    assert OpenSetClassifier.from_pretrained(str(tmp_path / "model" / "model.safetensors")).recipe == "frozen"
    with pytest.raises(UserError, match=r"writes a folder, and .* is the name of a file; use save"):
        fitted.save_pretrained(tmp_path / "m.safetensors")
    with pytest.raises(UserError, match="a revision is of a model on the Hub"):
        OpenSetClassifier.from_pretrained(tmp_path / "model", revision="v1")
    with pytest.raises(UserError, match="no model at"):
        OpenSetClassifier.from_pretrained("nowhere")
    with pytest.raises(UserError, match="is no repository of the Hub"):
        OpenSetClassifier.from_pretrained("hf://nowhere")


def test_notes_cannot_name_a_recipe_file(fitted: OpenSetClassifier, tmp_path: Path) -> None:
    """A model file may come from anywhere: what it says of its recipe must not make us read a file."""
    from gradmix.recognition import save

    (tmp_path / "evil.yaml").write_text("method: ./evil.py\n")
    save(
        fitted.recognizer_, tmp_path / "m.safetensors", {"recipe": str(tmp_path / "evil.yaml"), "classes": []}
    )
    assert OpenSetClassifier.load(tmp_path / "m.safetensors").recipe == "small"


def test_models_of_a_method_that_is_not_here(fitted: OpenSetClassifier, tmp_path: Path) -> None:
    from gradmix.recognition import save

    recipe = {**fitted.recognizer_.recipe, "method": "mine", "strength": 3}
    save(replace(fitted.recognizer_, recipe=recipe), tmp_path / "m.safetensors")
    loaded = OpenSetClassifier.load(tmp_path / "m.safetensors")
    assert (loaded.method, loaded.overrides["strength"]) == ("mine", 3)
    assert loaded.predict(crosses(1)).shape == (1,)


def test_a_folder_of_unknown_images_is_no_class(folders: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "unknown").symlink_to(folders / "others")
    for kind in CLASSES:
        (tmp_path / "photos" / kind).symlink_to(folders / "fresh" / kind)
    with pytest.raises(UserError, match="'unknown' stands for unknown and cannot be a class; leave these"):
        quick().fit(tmp_path / "photos")
    clf = quick().fit(folders / "fresh")
    assert clf.score(tmp_path / "photos") > 0.5  # here they are right if they are rejected


def test_from_the_hub(monkeypatch: pytest.MonkeyPatch, fitted: OpenSetClassifier, tmp_path: Path) -> None:
    asked = []

    def fetch(address: Any) -> Path:
        asked.append(str(address))
        return fitted.save(tmp_path / "m.safetensors")

    monkeypatch.setattr("gradmix.recognition.model_file.fetch", fetch)
    monkeypatch.chdir(tmp_path)
    for name, revision in (
        ("me/otters", None),
        ("hf://me/otters", None),
        ("me/otters", "v1"),
        ("hf://me/otters@v1", None),
    ):
        loaded = OpenSetClassifier.from_pretrained(name, revision=revision)
        assert loaded.known_classes_.tolist() == list(CLASSES)
    assert asked == ["hf://me/otters", "hf://me/otters", "hf://me/otters@v1", "hf://me/otters@v1"]


def test_push_refuses_what_is_no_repository(fitted: OpenSetClassifier) -> None:
    with pytest.raises(UserError, match="'otters' is no repository of the Hub; give owner/name"):
        fitted.push_to_hub("otters")


def test_methods_need_a_fitted_model(tmp_path: Path) -> None:
    pictures, names = arrays(2)
    calls = {
        "predict": (pictures,),
        "predict_proba": (pictures,),
        "predict_table": (pictures,),
        "decision_function": (pictures,),
        "score_samples": (pictures,),
        "p_value": (pictures,),
        "score": (pictures, names),
        "explain": (pictures,),
        "evaluate": (pictures, pictures),
        "calibrate": (),
        "discover": (pictures,),
        "export": (tmp_path / "x",),
        "save": (tmp_path / "y",),
        "save_pretrained": (tmp_path / "z",),
        "push_to_hub": ("me/otters",),
        "forget": ("bar",),
    }
    from sklearn.exceptions import NotFittedError

    for name, words in calls.items():
        with pytest.raises(NotFittedError):
            getattr(quick(), name)(*words)
    with pytest.raises(NotFittedError):
        quick().enroll(pictures, name="cat")
    assert not list(tmp_path.iterdir())  # nothing half-written


def test_models_with_a_backbone_of_ones_own_are_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file alone could not be opened again; the model in memory can be uploaded."""
    clf = OpenSetClassifier(
        "frozen",
        backbone=Foreign(),
        backbone_layer="avgpool",
        image_size=SIDE,
        holdout=0.25,
        false_reject=0.2,
    ).fit(*arrays())
    given = []
    monkeypatch.setattr("gradmix.hub.push_recognizer", lambda *words, **more: given.append((words, more)))
    clf.push_to_hub("me/otters", pictures=True)
    (recognizer, notes, repo), more = given[0]
    assert recognizer is clf.recognizer_
    assert (notes["classes"], repo, more["pictures"], more["private"]) == (
        list(CLASSES),
        "me/otters",
        True,
        False,
    )


def test_every_public_method_says_what_it_does() -> None:
    for name, method in inspect.getmembers(OpenSetClassifier, inspect.isfunction):
        if not name.startswith("_") and method.__module__.startswith("gradmix"):
            assert method.__doc__, name


def test_p_values_and_another_rate(fitted: OpenSetClassifier) -> None:
    pictures = np.concatenate([arrays(8, seed=5)[0], crosses().images[:].permute(0, 2, 3, 1).numpy()])
    p = fitted.p_value(pictures)
    rate = fitted.recognizer_.threshold.false_reject
    assert np.array_equal(p <= rate, fitted.predict(pictures) == fitted.unknown_label_)
    for other in (0.3, 0.6):
        answers = fitted.predict(pictures, false_reject=other)
        assert np.array_equal(p <= other, answers == fitted.unknown_label_)
        unknown = control_false_discoveries(p.tolist(), other).numpy()
        answers = fitted.predict(pictures, fdr=other)
        assert np.array_equal(unknown, answers == fitted.unknown_label_)
        assert np.array_equal(answers[~unknown], fitted.predict_table(pictures).nearest[~unknown])
    assert np.array_equal(fitted.predict_table(pictures).p_value, p)
    assert fitted.recognizer_.threshold.false_reject == rate
    for wrong in ({"false_reject": 1.5}, {"fdr": 0.0}, {"fdr": 0.1, "false_reject": 0.1}):
        with pytest.raises(UserError):
            fitted.predict(pictures, **wrong)
