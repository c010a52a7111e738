"""Which trials there are, which share a training, and what is told of cuts."""

from __future__ import annotations

import pytest

from gradmix.data import ImageSet
from gradmix.errors import UserError
from gradmix.experiments import EXPERIMENTS, PRESETS, get_experiment
from gradmix.experiments.declaration import Arm
from gradmix.experiments.engine.plan import Plan, count_steps, make_plan
from gradmix.experiments.engine.recipes import shift_one_stage_earlier
from gradmix.experiments.images import GeneratedImages
from gradmix.training import train


def plan(name: str, preset: str = "cpu", **choices: object) -> Plan:
    return make_plan(get_experiment(name), PRESETS[preset], **choices)  # type: ignore[arg-type]


def test_cifar_plus_10_and_50_are_trained_once() -> None:
    made = plan("table2", "paper", protocols=["cifar+10", "cifar+50"], methods=["gradmix"])
    assert len(made.trials) == 10
    assert len(made.trainings()) == 5
    assert len({trial.key for trial in made.trials}) == 10  # but tested on different unknowns


@pytest.mark.parametrize(
    ("one", "arm", "other", "same_as"),
    [
        ("fig-mixers", "gradmix", "table2", "gradmix"),
        ("fig-mixers", "none", "fig-area", "none"),
        ("fig-layers", "conv3+4+5", "table2", "gradmix"),
        ("ablation-target", "objective", "ablation-k", "100"),
        ("ablation-score-normalize", "none", "ablation-k", "1"),
    ],
)
@pytest.mark.parametrize("preset", PRESETS)
def test_experiments_share_trainings(preset: str, one: str, arm: str, other: str, same_as: str) -> None:
    first = plan(one, preset, protocols=["cifar10"], methods=[arm], trials=[0])
    second = plan(other, preset, protocols=["cifar10"], methods=[same_as], trials=[0])
    assert first.trials[0].training == second.trials[0].training


def test_what_changes_a_training_and_what_only_its_test() -> None:
    base = plan("table2", trials=[0], protocols=["cifar10"], methods=["gradmix"]).trials[0]

    def with_field(**fields: object) -> tuple[bool, bool]:
        other = plan(
            "table2", trials=[0], protocols=["cifar10"], methods=["gradmix"], overrides=fields
        ).trials[0]
        return other.training == base.training, other.key == base.key

    assert with_field(lr=0.5) == (False, False)
    assert with_field(gamma_max=0.4) == (False, False)
    assert with_field(k=5) == (True, False)
    assert with_field(score_normalize="sum") == (True, False)
    for field, value in (("openmax_tail", 5), ("openmax_alpha", 2), ("openmax_distance", "cosine")):
        assert with_field(**{field: value})[0]
    assert with_field(openmax_variant="neal", score_temperature=2.0)[0]
    assert with_field(log_every=3, checkpoint_minutes=1) == (True, True)


def test_every_trial_has_its_own_seed_and_split() -> None:
    trials = plan("table2", "paper", protocols=["svhn"], methods=["gradmix"]).trials
    assert [trial.recipe.training.seed for trial in trials] == [0, 1, 2, 3, 4]
    assert len({trial.split_hash for trial in trials}) == 5  # equal classes in another trial hash otherwise


def test_on_a_cpu_tinyimagenet_keeps_split_0() -> None:
    trials = plan("table2", protocols=["tinyimagenet"], methods=["gradmix"]).trials
    assert len({trial.split_hash for trial in trials}) == 1
    assert len({trial.training for trial in trials}) == 3


def test_cuts_are_told() -> None:
    cuts = plan("table2").deviations
    assert "encoder: resnet18 → conv7_32" in cuts
    assert "trials: 5 → 3" in cuts
    assert "image_size: 64 → 32 (TinyImageNet)" in cuts
    assert any(cut.startswith("length: as printed → ") for cut in cuts)
    assert not any(cut.startswith(("epochs", "max_steps")) for cut in cuts)
    assert any(cut.startswith("max_steps: all → 7") for cut in plan("table2", max_steps=7).deviations)
    assert plan("table2", "paper").deviations == ()
    assert plan("table2", "paper", overrides={"batch_size": "64"}).deviations == ("batch_size: 256 → 64",)
    assert "max_steps: all → 2" in plan("table2", "paper", max_steps=2).deviations
    assert "left out: TinyImageNet" in plan("fig-layers").deviations
    assert any("generated" in cut for cut in plan("table2", "smoke").deviations)


def test_two_steps_have_a_folder_of_their_own() -> None:
    assert plan("table2", "paper").folder == "table2-paper"
    assert plan("table2", "paper", max_steps=2).folder == "table2-paper-2-steps"


def test_a_training_cut_short_is_not_taken_for_a_whole_one() -> None:
    """It keeps no snapshots and a small index; by its recipe alone it could be the preset's own."""
    chosen = {"protocols": ["cifar10"], "methods": ["gradmix"], "trials": [0]}
    whole = plan("table2", **chosen).trials[0]
    cut = plan("table2", **chosen, max_steps=whole.recipe.training.max_steps).trials[0]
    assert whole.recipe == cut.recipe
    assert whole.training != cut.training


def test_other_splits_have_a_folder_of_their_own() -> None:
    assert plan("table2", family="neal_2018").folder == "table2-cpu-neal_2018"
    assert plan("table2", family="neal_2018", max_steps=2).folder == "table2-cpu-neal_2018-2-steps"
    for name in ("table2", "table4"):  # of which the second takes no split at all
        with pytest.raises(UserError, match="no family of splits 'nonsense'"):
            plan(name, family="nonsense")


@pytest.mark.parametrize(
    ("choices", "layers"),
    [
        ({}, ("conv3_2", "conv4_2")),
        ({"encoder": "resnet8_16"}, ("conv3_2", "conv4_2")),
        ({"encoder": "resnet18"}, ("conv4_2", "conv5_2")),
        ({"encoder": "resnet10_16"}, ("conv4_2", "conv5_2")),
        ({"layers": "conv5_2"}, ("conv4_2",)),
        ({"layers": "conv3_2+layer3.0"}, ("conv2_2", "layer3.0")),
        ({"layers": "conv4_2", "encoder": "resnet34"}, ("conv4_2",)),
    ],
)
def test_layers_follow_the_number_of_stages(choices: dict[str, str], layers: tuple[str, ...]) -> None:
    [trial] = plan("fig-layers", methods=["conv4+5"], trials=[0], overrides=choices).trials
    assert trial.recipe.objective.layers == layers
    assert shift_one_stage_earlier("layer3.1") == "layer3.1"


def test_layers_follow_the_encoder_of_any_preset() -> None:
    [trial] = plan(
        "table2",
        "paper",
        protocols=["mnist"],
        methods=["gradmix"],
        trials=[0],
        overrides={"encoder": "resnet8_16"},
    ).trials
    assert trial.recipe.objective.layers == ("conv4_2",)


def test_images_are_shared_by_rows_that_see_them_alike() -> None:
    grey = Arm("grey", "Grey", {"channels": 1}, code="1")
    colour, other = plan("table2", protocols=["cifar10"], methods=["gradmix"], own=[grey], trials=[0]).trials
    assert colour.images_key[:3] == other.images_key[:3]
    assert (colour.images_key[3], other.images_key[3]) == (3, 1)


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ({"protocols": ["cifar01"]}, "no protocol 'cifar01'; did you mean 'cifar10'"),
        ({"methods": ["gradmx"]}, "no method 'gradmx'; did you mean 'gradmix'"),
        ({"overrides": {"batchsize": 4}}, "no option or recipe field 'batchsize'; did you mean 'batch_size'"),
        ({"overrides": {"seed": 4}}, "seed: every trial has its own"),
        ({"overrides": {"lr": "fast"}}, "lr must be a number"),
        ({"trials": [7]}, "no trial 7"),
        ({"family": "arpl"}, "no family of splits 'arpl'"),
        ({"overrides": {"layers": "conv2_2"}}, "nothing takes the place of conv2 in conv7_32"),
    ],
)
def test_mistakes_name_the_way_out(choices: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint.replace("(", r"\(")):
        plan("table2", **choices)


def test_steps_are_those_of_the_training() -> None:
    [trial] = plan("table2", "smoke", protocols=["mnist"], methods=["ce"]).trials
    images: ImageSet = GeneratedImages().load_trial_data(trial.data, 0, 16, 1).train
    assert count_steps(trial.recipe, len(images)) == train(images, trial.recipe).steps == 4


def test_a_row_that_needs_weights_waits_for_them() -> None:
    def methods(preset: str, **choices: object) -> set[str]:
        return {trial.arm.name for trial in plan("table2", preset, **choices).trials}

    every = {arm.name for arm in EXPERIMENTS["table2"].arms}
    assert methods("paper") == every - {"attentive-cutmix"}
    assert methods("smoke") == every  # with a network that was never trained
    assert methods("paper", overrides={"attention_init": "resnet18.pth"}) == every
    with pytest.raises(UserError, match="Attentive CutMix needs --attention-init"):
        plan("table2", "paper", methods=["attentive-cutmix"])


def test_what_is_not_the_papers_is_not_called_so() -> None:
    assert [bench.label for bench in plan("fig-ssl").benches] == ["Small encoder"]
    assert "left out: ResNet34, ResNet50" in plan("fig-ssl").deviations
    assert plan("table6").benches[0].label == "mini-imagenet"
    assert plan("table6", "paper").benches[0].label == "ImageNet100"
