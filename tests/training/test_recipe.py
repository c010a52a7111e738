from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradmix.errors import UserError
from gradmix.methods import METHODS
from gradmix.training import field_names, load_recipe, make_recipe, recipe_names

ALL_LAYERS = ["conv3_2", "conv4_2", "conv5_2"]
# The table of the method's description: λ, epochs, layers.
PRINTED: dict[str, tuple[float, int, list[str]]] = {
    "paper/mnist": (1.0, 20, ["conv5_2"]),
    "paper/svhn": (1.0, 100, ["conv5_2"]),
    "paper/cifar10": (1.2, 600, ALL_LAYERS),
    "paper/cifar+10": (1.2, 600, ALL_LAYERS),
    "paper/cifar+50": (1.2, 600, ALL_LAYERS),
    "paper/tinyimagenet": (1.0, 600, ALL_LAYERS),
}


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_loads_and_survives_its_own_file(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    (tmp_path / "resolved.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    assert load_recipe(str(tmp_path / "resolved.yaml")) == recipe
    assert set(recipe.flat()) == set(field_names(recipe.method))


@pytest.mark.parametrize("name", PRINTED)
def test_the_papers_recipes_have_the_printed_values(name: str) -> None:
    lam, epochs, layers = PRINTED[name]
    printed = {
        "method": "gradmix",
        "mixer": "gradmix",
        "theta": 1.0,
        "lam": lam,
        "epochs": epochs,
        "layers": layers,
        "optimizer": "adam",
        "lr": 1e-3,
        "lr_min": 5.12e-5,
        "warmup_steps": 0,
        "batch_size": 256,
        "encoder": "resnet18",
        "feature_dim": 128,
        "k": 3,
        "gamma_min": 0.1,
        "gamma_max": 0.5,
        "mix_weight": "area",
        "attribution": "layercam",
        "locate": "peak",
        "supcon_denominator": "negatives",
        "max_steps": None,
        "limit_per_class": None,
    }
    flat = load_recipe(name).flat()
    assert {field: flat[field] for field in printed} == printed
    assert flat["flip"] == (name not in ("paper/mnist", "paper/svhn"))  # never on digits


# Vaze et al.'s table: lr, (N, M), smoothing.
STRONG: dict[str, tuple[float, list[int], float]] = {
    "mnist": (0.1, [1, 8], 0.0),
    "svhn": (0.1, [1, 18], 0.0),
    "cifar10": (0.1, [1, 6], 0.0),
    "cifar+10": (0.1, [1, 6], 0.0),
    "cifar+50": (0.1, [1, 6], 0.0),
    "tinyimagenet": (0.01, [1, 9], 0.9),
}


@pytest.mark.parametrize("protocol", STRONG)
def test_the_strong_cross_entropy_is_the_released_one(protocol: str) -> None:
    lr, randaugment, smoothing = STRONG[protocol]
    digits, large = protocol in ("mnist", "svhn"), protocol == "tinyimagenet"
    released = {
        "method": "ce",
        "encoder": "vgg32",
        "projection": "none",
        "classifier_bias": False,
        "epochs": 600,
        "batch_size": 128,
        "optimizer": "adam" if large else "sgd",
        "momentum": 0.9,
        "nesterov": False,
        "weight_decay": 0.0 if large else 1e-4,
        "lr": lr,
        "lr_min": pytest.approx(lr / 1000),
        "schedule": "restarts",
        "restarts": 2,
        "label_smoothing": smoothing,
        "image_size": 64 if large else 32,
        "channels": 3,
        "normalize": "cifar",
        "crop": "pad",
        "pad": 4,
        "flip": not digits,  # never on digits, though the release does
        "randaugment": randaugment,
        "randaugment_operations": "digits" if digits else "all",
        "jitter_chance": 0.0,
        "grey_chance": 0.0,
        "max_steps": None,
    }
    flat = load_recipe(f"paper/ce-plus-{protocol}").flat()
    assert {field: flat[field] for field in released} == released
    if large:
        assert flat["smoothing_spread"] == "others"
    images = {"cifar10": 30_000, "cifar+10": 20_000, "cifar+50": 20_000, "tinyimagenet": 10_000}
    if protocol in images:
        assert flat["warmup_steps"] == 10 * (images[protocol] // 128)


def test_no_two_rooms_share_a_field_name() -> None:
    for method in METHODS:
        names = field_names(method)
        assert len(names) == len(set(names))


def test_text_is_converted_to_the_fields_type() -> None:
    recipe = make_recipe(
        {
            "epochs": "7",
            "lr": "1e-4",
            "flip": "No",
            "layers": "conv3_2 + conv4_2",
            "crop_scale": "0.3, 0.9",
            "clip_norm": "none",
            "max_steps": "12",
            "alpha": "0.5",
            "rotate": 10,
        }
    )
    assert recipe.training.epochs == 7
    assert recipe.training.lr == pytest.approx(1e-4)
    assert recipe.views.flip is False
    assert recipe.objective.layers == ("conv3_2", "conv4_2")
    assert recipe.views.crop_scale == (0.3, 0.9)
    assert recipe.training.clip_norm is None
    assert recipe.training.max_steps == 12
    assert recipe.objective.alpha == 0.5
    assert isinstance(recipe.views.rotate, float)
    assert make_recipe({"layers": "conv5_2"}).objective.layers == ("conv5_2",)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("epochs", "many", "epochs must be a whole number, not 'many'"),
        ("epochs", 2.5, "epochs must be a whole number, not 2.5"),
        ("epochs", float("inf"), "epochs must be a whole number"),
        ("epochs", None, "epochs must be a whole number, not empty"),
        ("epochs", [1], "epochs must be a whole number"),
        ("epochs", "0", "epochs must be at least 1"),
        ("lr", "fast", "lr must be a number, not 'fast'"),
        ("lr", "nan", "lr must be positive"),
        ("init", None, "init must be text, not empty"),
        ("flip", "perhaps", "flip must be true or false, not 'perhaps'"),
        ("crop_scale", "0.2", "crop_scale takes 2 values"),
        ("crop_scale", "a,b", "crop_scale must be a number, not 'a'"),
        ("method", "gradmx", "did you mean 'gradmix'"),
        ("optimizer", "adm", "did you mean 'adam'"),
        ("device", "gpu", "no device 'gpu'"),
        ("precision", "fp8", "no precision 'fp8'"),
        ("holdout", 1, "holdout must be"),
        ("k", 0, "k must be at least 1"),
        ("weight_decay", -1, "weight_decay must not be negative"),
    ],
)
def test_wrong_values_are_named(field: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        make_recipe({field: value})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "right"), [("epoch", "epochs"), ("batchsize", "batch_size"), ("learning", "warmup_steps")]
)
def test_misspelt_fields_name_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(UserError, match=f"no recipe field .* '{wrong}'") as error:
        make_recipe({wrong: 1})
    if wrong != "learning":
        assert f"did you mean '{right}'?" in str(error.value)
    assert right in str(error.value)  # in the list, at least


def test_fields_of_another_method_are_refused() -> None:
    with pytest.raises(UserError, match=r"no recipe field \(method ce\) 'mixer'"):
        make_recipe({"method": "ce", "mixer": "cutmix"})
    with pytest.raises(UserError, match="'3'"):
        make_recipe({3: 4})


def write(folder: Path, **files: str) -> dict[str, str]:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return {name: str(folder / f"{name}.yaml") for name in files}


def test_a_base_gives_what_the_file_leaves_out(tmp_path: Path) -> None:
    paths = write(tmp_path, a="base: paper/mnist\nlam: 3\n", b=f"base: {tmp_path / 'a.yaml'}\nepochs: 4\n")
    flat = load_recipe(paths["b"], {"lr": "0.5"}).flat()
    assert (flat["lam"], flat["epochs"], flat["lr"], flat["image_size"]) == (3.0, 4, 0.5, 28)


def test_a_file_may_have_another_method_than_its_base(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, a="base: cpu/cifar10\nmethod: ce\n")["a"])
    assert (recipe.method, recipe.model.encoder) == ("ce", load_recipe("cpu/cifar10").model.encoder)


def test_bases_must_end_somewhere(tmp_path: Path) -> None:
    paths = write(tmp_path, a=f"base: {tmp_path / 'b.yaml'}\n", b=f"base: {tmp_path / 'a.yaml'}\n")
    with pytest.raises(UserError, match="is its own base"):
        load_recipe(paths["a"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"- 1\n- 2\n", "must be a list of 'field: value' lines"),
        (b"", "must be a list of 'field: value' lines"),
        (b"epochs: [1,\n", "not valid YAML"),
        (b"\xff\xfe\x00binary", "not valid YAML"),
        (b"!!python/object/apply:os.system ['touch executed']", "not valid YAML"),
    ],
)
def test_files_that_are_no_recipe(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        load_recipe(str(tmp_path / "r.yaml"))
    assert "\n" not in str(error.value)
    assert not Path("executed").exists()


def test_recipes_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'paper/cifar10'"):
        load_recipe("paper/cifar1")
    with pytest.raises(UserError, match=r"no recipe file .*nowhere\.yaml"):
        load_recipe(str(tmp_path / "nowhere.yaml"))


def test_another_method_takes_the_fields_it_has() -> None:
    recipe = load_recipe("small", {"method": "ce", "epochs": 3})
    assert (recipe.method, recipe.training.epochs) == ("ce", 3)
    assert recipe.model == load_recipe("small").model
    with pytest.raises(UserError, match="lam"):  # asked for by name, it is a mistake
        load_recipe("small", {"method": "ce", "lam": 1.0})
    with pytest.raises(UserError, match="no method 'cee'; did you mean 'ce'"):
        load_recipe("small", {"method": "cee"})
