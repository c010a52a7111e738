"""Recipes listed, shown, compared; their fields in the help of train."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gradmix.cli import main
from gradmix.cli.field_help import describe_fields, list_fields, write_value
from gradmix.methods.frozen import FrozenSettings
from gradmix.recipe import load_recipe, make_recipe, recipe_names
from gradmix.recipe.recipe import _sections

Refused = Callable[..., str]


def lines(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    capsys.readouterr()
    assert main(["recipe", *words]) == 0
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_every_recipe_is_listed_with_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    heading, *rows = lines(capsys, "list")
    assert heading.split() == ["recipe", "what", "it", "is"]
    found = dict(row.split(maxsplit=1) for row in rows)
    assert list(found) == recipe_names()
    assert all(text.endswith((".", ".)")) for text in found.values())
    assert found["demo"] == "The demo: 2,400 digits on two CPU cores in less than three minutes."


@pytest.mark.parametrize("name", recipe_names())
def test_what_is_shown_is_the_recipe(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = "\n".join(lines(capsys, "show", name))
    assert make_recipe(yaml.safe_load(shown)) == load_recipe(name)
    short = "\n".join(lines(capsys, "show", name, "--set"))
    assert make_recipe(yaml.safe_load(short)) == load_recipe(name)  # the rest is as by default
    assert len(short) < len(shown)


def test_fields_are_shown_with_their_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    shown = lines(capsys, "show", "cpu/arpl-cs-cifar10")
    assert any(row.startswith("epochs: ") for row in shown)
    assert any(row.startswith("warmup_steps: ") and "# linear rise from 0" in row for row in shown)
    inherited = [row for row in shown if row.startswith("radius_weight")]
    assert "#" in inherited[0]  # of the class that its settings are made from


def test_two_recipes_are_compared(capsys: pytest.CaptureFixture[str], refused: Refused) -> None:
    heading, *rows = lines(capsys, "diff", "cpu/cifar10", "cpu/svhn")
    assert heading.split() == ["field", "cpu/cifar10", "cpu/svhn"]
    one, other = load_recipe("cpu/cifar10").flat(), load_recipe("cpu/svhn").flat()
    assert [row.split()[0] for row in rows] == [name for name in one if one[name] != other[name]]
    assert ["flip", "true", "false"] in [row.split() for row in rows]
    rows = lines(capsys, "diff", "small", "frozen")
    assert any(row.split()[0] == "theta" and row.split()[-1] == "–" for row in rows)
    assert lines(capsys, "diff", "small", "small") == ["small and small are the same"]
    Path("my.yaml").write_text("base: small\nepochs: 3\n")
    (row,) = lines(capsys, "diff", "small", "my.yaml")[1:]
    assert row.split() == ["epochs", str(load_recipe("small").training.epochs), "3"]
    assert "did you mean 'small'" in refused("recipe", "diff", "smal", "frozen")
    assert "no recipe file nowhere.yaml" in refused("recipe", "show", "nowhere.yaml")


def test_the_help_of_train_has_every_field_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    found = [field for fields in list_fields().values() for field in fields]
    kinds = [*_sections("gradmix").values(), FrozenSettings]
    declared = {f.name: f.default for kind in kinds for f in dataclasses.fields(kind)}
    assert {field.name: field.default for field in found} == {
        name: write_value(default) for name, default in declared.items()
    }
    assert len(found) == len(declared)
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    out = capsys.readouterr().out
    assert describe_fields() in out
    assert "  --whiten false                     a linear map after which" in out
    assert "  --warmup-steps 0                   linear rise from 0 to the schedule's own value\n" in out
