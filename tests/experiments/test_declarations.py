"""The declarations fit together, and every arm's recipe can be built in every preset."""

from __future__ import annotations

import pytest

from gradmix.data import KNOWN_SETS, PROTOCOLS
from gradmix.experiments import EXPERIMENTS, PRESETS
from gradmix.experiments.declaration import Experiment, OpenSplit
from gradmix.experiments.engine.recipes import build_recipe
from gradmix.experiments.measures import MEASURES
from gradmix.experiments.paper import paper_numbers
from gradmix.training import recipe_names

every_experiment = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)

# Everything that the paper shows, and the choices that go beyond it.
WANTED = (
    *(f"table{i}" for i in range(1, 7)),
    *("fig-mixers", "fig-layers", "fig-ssl", "fig-maps", "fig-area"),
    *("ablation-target", "ablation-locate", "ablation-pairing", "ablation-gamma-per", "ablation-mix-weight"),
    *("ablation-supcon-denominator", "ablation-temperature", "ablation-score-normalize", "ablation-k"),
)


def test_every_table_and_figure_is_there() -> None:
    assert set(EXPERIMENTS) == set(WANTED)


@every_experiment
def test_names_are_unique_and_parts_exist(experiment: Experiment) -> None:
    assert experiment.measure in MEASURES
    for names in (
        [arm.name for arm in experiment.arms],
        [bench.name for bench in experiment.benches],
        [column.metric for column in experiment.columns],
    ):
        assert len(set(names)) == len(names)
    assert set(experiment.cpu.benches or ()) <= {bench.name for bench in experiment.benches}
    assert set(experiment.cpu.arms or ()) <= {arm.name for arm in experiment.arms}
    for bench in experiment.benches:
        assert bench.recipe in recipe_names()
        for data in filter(None, (bench.data, bench.small)):
            known = data.protocol in PROTOCOLS if isinstance(data, OpenSplit) else data.source in KNOWN_SETS
            assert known


@every_experiment
def test_the_papers_numbers_fit_the_declaration(experiment: Experiment) -> None:
    paper = paper_numbers(experiment.name)
    for arm, benches in paper.rows.items():
        assert arm in {a.name for a in experiment.arms}
        for bench, metrics in benches.items():
            assert bench in {b.name for b in experiment.benches}
            assert set(metrics) <= {c.metric for c in experiment.columns}
            assert all(0 < value <= 100 for value in metrics.values())


@every_experiment
@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_every_recipe_can_be_built(experiment: Experiment, preset: object) -> None:
    for bench in experiment.benches:
        for arm in experiment.arms:
            recipe = build_recipe(experiment, bench, arm, preset)  # type: ignore[arg-type]
            assert recipe.method == arm.fields.get("method", "gradmix")


@every_experiment
def test_notes_on_printed_rows_are_of_rows_that_there_are(experiment: Experiment) -> None:
    assert set(paper_numbers(experiment.name).notes) <= {arm.name for arm in experiment.arms}


def test_a_published_recipe_is_that_of_the_data_set_or_of_cifar10_without_its_images() -> None:
    table2 = EXPERIMENTS["table2"]
    [arpl] = [arm for arm in table2.arms if arm.name == "arpl"]
    made = {b.name: build_recipe(table2, b, arpl, PRESETS["paper"]) for b in table2.benches}
    assert all(recipe.model.encoder == "vgg32" for recipe in made.values())
    assert {name: recipe.training.optimizer for name, recipe in made.items()} == {
        **dict.fromkeys(made, "sgd"),
        "tinyimagenet": "adam",
    }
    assert (made["mnist"].views.flip, made["cifar+10"].views.flip) == (False, True)
    assert (made["svhn"].views.image_size, made["tinyimagenet"].views.image_size) == (32, 64)
    small = build_recipe(table2, table2.benches[2], arpl, PRESETS["smoke"])
    assert (small.model.encoder, small.training.optimizer) == ("resnet8_16", "sgd")


def test_how_many_numbers_the_paper_prints() -> None:
    def count(name: str) -> int:
        return sum(len(metrics) for row in paper_numbers(name).rows.values() for metrics in row.values())

    # Table 2: 14 rows of six, three of them without MNIST. Table 4: five rows of ten, two without TNR.
    assert [count(f"table{i}") for i in range(1, 7)] == [24, 81, 15, 48, 24, 16]


@pytest.mark.parametrize(
    ("table", "arm", "bench", "metric", "value"),
    [
        ("table1", "supcon+ssl", "tinyimagenet", "nno", 77.48),
        ("table2", "gradmix", "cifar+50", "auroc", 97.64),
        ("table2", "attentive-cutmix", "mnist", "auroc", 78.75),
        ("table3", "gradmix", "cifar100", "accuracy", 78),
        ("table4", "gradmix", "cifar10", "svhn/tnr", 80.5),
        ("table5", "none", "cifar10", "severity/5", 33.29),
        ("table6", "moco-gradmix", "imagenet100", "top5", 72.37),
    ],
)
def test_some_of_them(table: str, arm: str, bench: str, metric: str, value: float) -> None:
    assert paper_numbers(table).get(arm, bench, metric) == value


@pytest.mark.parametrize(
    ("bench", "lam", "epochs", "layers"),
    [
        ("mnist", 1.0, 20, ("conv5_2",)),
        ("svhn", 1.0, 100, ("conv5_2",)),
        ("cifar10", 1.2, 600, ("conv3_2", "conv4_2", "conv5_2")),
        ("cifar+50", 1.2, 600, ("conv3_2", "conv4_2", "conv5_2")),
        ("tinyimagenet", 1.0, 600, ("conv3_2", "conv4_2", "conv5_2")),
    ],
)
def test_preset_paper_is_as_printed(bench: str, lam: float, epochs: int, layers: tuple[str, ...]) -> None:
    table2 = EXPERIMENTS["table2"]
    [chosen] = [b for b in table2.benches if b.name == bench]
    recipe = build_recipe(table2, chosen, table2.arms[-1], PRESETS["paper"])
    s = recipe.training
    assert (recipe.objective.theta, recipe.objective.lam, recipe.detection.k) == (1.0, lam, 3)
    assert (s.epochs, s.batch_size, s.optimizer, s.lr, s.lr_min) == (epochs, 256, "adam", 1e-3, 5.12e-5)
    assert (recipe.model.encoder, recipe.model.feature_dim) == ("resnet18", 128)
    assert recipe.objective.layers == layers
    assert recipe.detection.score_normalize == "sum"
    assert (s.limit_per_class, s.max_steps) == (None, None)


def test_table5_has_its_own_weights_and_ablations_their_own_k() -> None:
    table5, mixers = EXPERIMENTS["table5"], EXPERIMENTS["fig-mixers"]
    paper = PRESETS["paper"]
    lams = [build_recipe(table5, bench, table5.arms[-1], paper).objective.lam for bench in table5.benches]
    assert lams == [1.0, 1.2]  # as printed, the reverse of Table 2's
    assert build_recipe(mixers, mixers.benches[0], mixers.arms[0], paper).detection.k == 10
