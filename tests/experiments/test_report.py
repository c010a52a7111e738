"""Paper and here side by side: from trials made up by hand to tables, LaTeX and the page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gradmix.experiments import PRESETS, get_experiment
from gradmix.experiments.engine.plan import make_plan
from gradmix.experiments.engine.results import ExperimentResult, TrialResult
from gradmix.experiments.paper import paper_numbers
from gradmix.experiments.report.figures import corruptions_figure, curves_figure, maps_figure, rows_figure
from gradmix.experiments.report.page import build_page
from gradmix.experiments.report.tables import (
    compare_with_paper,
    flatten_rows,
    join_pairs,
    list_facts,
    list_headers,
    to_latex,
    to_markdown,
)
from gradmix.report import render

EVIL = "<script>alert('α & β')</script>"


def trial(bench: str, arm: str, number: int, **metrics: float) -> TrialResult:
    return TrialResult(
        bench=bench,
        arm=arm,
        arm_label={"gradmix": "GradMix"}.get(arm, EVIL),
        trial=number,
        key=f"{bench}{arm}{number}",
        training=f"{arm}{number}",
        seed=number,
        split_hash="abc",
        metrics={name.replace("__", "/"): value for name, value in metrics.items()},
        series={},
        curve=([10.0, 20.0], [0.5, 0.6 + 0.1 * number]),
        steps=20,
        minutes=1.5,
        images=100,
        recipe={},
        overrides={},
        versions={"gradmix": "1"},
    )


def result(name: str, *trials: TrialResult, preset: str = "cpu") -> ExperimentResult:
    plan = make_plan(get_experiment(name), PRESETS[preset])
    return ExperimentResult(plan, trials, Path(), "gradmix reproduce", paper_numbers(name))


TWO = (trial("cifar10", "gradmix", 0, auroc=0.7), trial("cifar10", "gradmix", 1, auroc=0.72))


def row(found: ExperimentResult, label: str, table: int = 0) -> dict[str, str]:
    compared = compare_with_paper(found)[table]
    [cells] = [cells for cells in flatten_rows(compared) if cells[0] == label]
    return dict(zip(list_headers(compared), cells, strict=True))


def test_mean_and_standard_deviation_stand_beside_the_papers_number() -> None:
    cells = row(result("table2", *TWO), "GradMix")
    assert cells["CIFAR10 paper"] == "91.33"
    assert cells["CIFAR10 here"] == "71.00 ± 1.41"
    assert cells["MNIST here"] == "–"


def test_one_trial_has_no_deviation() -> None:
    assert row(result("table2", TWO[0]), "GradMix")["CIFAR10 here"] == "70.00"


def test_rows_that_were_not_run_have_the_papers_numbers() -> None:
    empty = row(result("table2", *TWO), "GRROSR")
    assert (empty["SVHN paper"], empty["SVHN here"], empty["MNIST paper"]) == ("93.50", "–", "–")


def test_a_number_that_the_paper_prints_in_another_metric_stands_beside_ours_in_that_metric() -> None:
    found = result("table2", trial("mnist", "openauc", 0, auroc=0.9, oscr=0.8))
    auroc, oscr = row(found, "OpenAUC", 0), row(found, "OpenAUC", 1)
    assert (auroc["MNIST paper"], auroc["MNIST here"]) == ("–", "90.00")
    assert (oscr["MNIST paper"], oscr["MNIST here"]) == ("99.40", "80.00")
    assert [table.heading for table in compare_with_paper(found)] == ["AUROC", "OSCR (= OpenAUC)"]
    assert any(
        fact.startswith("OpenAUC: the paper prints these among the AUROC") for fact in list_facts(found)
    )


def test_rows_without_weights_say_so() -> None:
    found = result("table2", *TWO)
    assert row(found, "Attentive CutMix (needs --attention-init)")["MNIST paper"] == "78.75"
    ran = result("table2", trial("mnist", "attentive-cutmix", 0, auroc=0.5))
    assert row(ran, "Attentive CutMix")["MNIST here"] == "50.00"


def test_on_the_page_paper_and_here_share_a_cell() -> None:
    headers, rows = join_pairs(compare_with_paper(result("table2", *TWO))[0])
    assert headers[3] == "CIFAR10 paper / here"
    assert rows[-1][3] == "91.33 / 71.00 ± 1.41"
    headers, rows = join_pairs(compare_with_paper(result("fig-mixers", *TWO))[0])
    assert (headers[1], rows[-1][1]) == ("CIFAR10", "71.00 ± 1.41")


def test_a_dimension_is_not_a_percentage() -> None:
    found = result("table1", trial("cifar10", "ce", 0, id=12.345, nno=0.5))
    assert row(found, "CE")["ID here"] == "12.35"
    assert row(found, "CE")["A_nno here"] == "50.00"


def test_where_the_paper_prints_nothing_it_has_no_column() -> None:
    found = result("fig-mixers", trial("cifar10", "gradmix", 0, auroc=0.7))
    assert list_headers(compare_with_paper(found)[0]) == ["", "CIFAR10", "TinyImageNet"]


def test_groups_of_columns_are_tables() -> None:
    found = result("table4", trial("cifar10", "gradmix", 0, cifar100__tnr=0.5))
    headings = [table.heading for table in compare_with_paper(found)]
    assert headings == ["CIFAR10 – Out: CIFAR100", "CIFAR10 – Out: SVHN"]
    assert row(found, "GradMix")["TNR here"] == "50.00"
    assert row(found, "GradMix")["(TP+TN)/all"] == "–"


def test_ones_own_rows_come_last_and_cannot_break_the_page() -> None:
    found = result("table2", *TWO, trial("cifar10", "mine", 0, auroc=0.9))
    assert compare_with_paper(found)[0].rows[-1][0] == EVIL
    html = render(build_page(found))
    assert "<script" not in html
    assert "90.00" in html
    latex = to_latex(found)
    assert r"$\alpha$ \& β" in latex
    assert len(re.findall(r"(?<!\\)&", latex.splitlines()[-3])) == 12


def test_what_a_reader_must_know() -> None:
    said = " ".join(list_facts(result("table2", *TWO)))
    assert "Preset cpu" in said
    assert "Trials: 2; 3.0 minutes of training" in said
    assert "encoder: resnet18 → conv7_32" in said
    assert "Not finished: 252 of 252 trials" in said  # these keys are made up
    html = render(build_page(result("table2", *TWO)))
    for detail in ("split hashes", "versions", "seeds", "the same split twice", "AUROC against steps"):
        assert detail in html


def test_the_family_and_its_repeated_splits_are_told_everywhere() -> None:
    found = result("table2", *TWO)
    [said] = [fact for fact in list_facts(found) if fact.startswith("Splits")]
    assert said == "Splits: family arpl_2020; the same classes: CIFAR10, trials 0 and 1."
    assert said in to_markdown(found)
    assert f"% {said}" in to_latex(found)
    assert "CIFAR10, trials 0 and 1" in render(build_page(found))


def test_only_trials_that_ran_repeat_a_split() -> None:
    later = (TWO[0], trial("cifar10", "gradmix", 2, auroc=0.7))
    for found in (result("table2", later[0]), result("table2", *later)):
        assert "Splits: family arpl_2020." in list_facts(found)


def test_a_split_that_all_trials_take_is_repeated() -> None:
    three = [trial("tinyimagenet", "gradmix", number, auroc=0.7) for number in range(3)]
    told = " ".join(list_facts(result("table2", *three)))
    assert "the same classes: TinyImageNet, trials 0, 1 and 2." in told
    assert "the same classes" not in " ".join(list_facts(result("table2", *three, preset="paper")))


def test_without_splits_there_is_no_family() -> None:
    assert not [fact for fact in list_facts(result("table4")) if "family" in fact]
    assert "Splits: family arpl_2020." in list_facts(result("table3"))  # twenty classes of a split, on a CPU


def test_seeds_hashes_and_versions_are_one_line() -> None:
    line = "Seeds: 0, 1. Split hashes: CIFAR10 abc. Versions: gradmix 1."
    assert f"- {line}\n" in to_markdown(result("table2", *TWO))
    differ = (TWO[0], replace(TWO[1], versions={"gradmix": "2"}))
    told = " ".join(list_facts(result("table2", *differ)))
    assert "Versions: they differ between trials: gradmix 1; or gradmix 2." in told
    assert "they differ between trials" in render(build_page(result("table2", *differ)))


def test_a_training_that_two_trials_share_is_counted_once() -> None:
    shared = (trial("cifar+10", "gradmix", 0, auroc=0.5), trial("cifar+50", "gradmix", 0, auroc=0.5))
    assert result("table2", *shared).minutes == 1.5


def test_figures_are_the_same_every_time_and_hold_their_names() -> None:
    curves = {"none": [([1.0, 2.0], [0.5, 0.6])] * 2, "GradMix": [([1.0, 2.0], [0.4, 0.7])]}
    for draw in (
        lambda: curves_figure(curves, "step", "AUROC"),
        lambda: rows_figure(["none", "GradMix"], [60.0, None], [1.0, None], [None, 91.3], "AUROC"),
        lambda: corruptions_figure({"none": {"fog": 0.1}, "GradMix": {"fog": -0.1}}, ["fog"]),
    ):
        assert draw() == draw()
        assert "GradMix" in draw()


@pytest.mark.parametrize("channels", [1, 3])
def test_maps_stand_below_their_images(channels: int) -> None:
    images = torch.randint(0, 256, (4, channels, 16, 16), dtype=torch.uint8)
    heat = torch.rand(4, 16, 16)
    svg = maps_figure(images, {"none": heat, EVIL: torch.rand(4, 28, 28)})  # of a network for larger images
    assert svg.count("<text") == 3
    assert "<script" not in svg
    assert 'href="data:image/png;base64,' in svg
