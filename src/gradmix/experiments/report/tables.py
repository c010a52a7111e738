"""An experiment's numbers as tables, paper and here side by side: for the page, as Markdown, as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...report.tables import NOT_MEASURED, markdown_table
from ..declaration import Arm, Bench, Column
from ..engine.results import ExperimentResult
from .comparisons import compare_with_reference, format_difference
from .origin import describe_family, describe_seeds, describe_splits, describe_versions

DEVIATIONS = "Other than in the paper: "
SEEDS = "Seeds: "
_LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$", "α": r"$\alpha$", "–": "--"}


@dataclass(frozen=True)
class Compared:
    """``columns`` label pairs of cells: rows are (label, ((paper, here), …)), all as text."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]

    @property
    def printed(self) -> tuple[bool, ...]:
        """Return per column whether the paper has a number in it; if not, only ours is shown."""
        papers = zip(*([paper for paper, _ in pairs] for _, pairs in self.rows), strict=True)
        return tuple(any(cell != NOT_MEASURED for cell in column) for column in papers)

    def sides(self) -> list[tuple[str, int, int]]:
        """Return (header, column, 0 for paper or 1 for here) of every cell of a row."""
        found = []
        for i, (column, printed) in enumerate(zip(self.columns, self.printed, strict=True)):
            if printed:
                found += [(f"{column} paper", i, 0), (f"{column} here", i, 1)]
            else:
                found.append((column, i, 1))
        return found


def compare_with_paper(result: ExperimentResult) -> list[Compared]:
    """Return a column per bench where each group has one number, else a table per bench and group.

    After these come the differences to the experiment's reference, if it has one.
    """
    return [*_compare_columns(result), *_compare_rows(result)]


def _compare_rows(result: ExperimentResult) -> list[Compared]:
    """Return a table per number of the rows' differences to the experiment's reference."""
    reference = next((a.label for a in result.arms if a.name == result.plan.experiment.reference), None)
    tables = []
    for column in result.plan.experiment.columns if reference is not None else ():
        scale, rows = 100.0 if column.percent else 1.0, []
        for arm in result.arms:
            found = [compare_with_reference(result, arm.name, bench, column) for bench in result.benches]
            if any(found):
                cells = tuple((NOT_MEASURED, format_difference(one, scale) or NOT_MEASURED) for one in found)
                rows.append((arm.label, cells))
        if rows:
            heading = f"{column.label}: difference to {reference}, trial by trial, with 95 % intervals"
            tables.append(Compared(heading, tuple(bench.label for bench in result.benches), tuple(rows)))
    return tables


def _compare_columns(result: ExperimentResult) -> list[Compared]:
    columns, benches = result.plan.experiment.columns, result.benches
    groups = list(dict.fromkeys(column.group for column in columns))
    if len(groups) == len(columns):
        labels = [bench.label for bench in benches]
        return [_build_table(result, c.label, [(bench, c) for bench in benches], labels) for c in columns]
    tables = []
    for bench in benches:
        for group in groups:
            chosen = [column for column in columns if column.group == group]
            heading = f"{bench.label} – {group}" if group else bench.label
            labels = [column.label for column in chosen]
            tables.append(_build_table(result, heading, [(bench, column) for column in chosen], labels))
    return tables


def list_headers(table: Compared) -> list[str]:
    """Return the header of every cell, in order: the row's name first."""
    return ["", *(header for header, _, _ in table.sides())]


def flatten_rows(table: Compared) -> list[list[str]]:
    sides = table.sides()
    return [[label, *(pairs[i][side] for _, i, side in sides)] for label, pairs in table.rows]


def join_pairs(table: Compared) -> tuple[list[str], list[list[str]]]:
    """Return headers and rows with "paper / here" in one cell, half as wide: for the page."""
    headers = [
        f"{c} paper / here" if both else c for c, both in zip(table.columns, table.printed, strict=True)
    ]
    rows = [
        [
            label,
            *(" / ".join(pair) if both else pair[1] for pair, both in zip(pairs, table.printed, strict=True)),
        ]
        for label, pairs in table.rows
    ]
    return ["", *headers], rows


def to_markdown(result: ExperimentResult) -> str:
    """Return a page of Markdown: what was run, how it deviates, the tables."""
    plan = result.plan
    lines = [f"# {plan.experiment.paper_item}: {plan.experiment.title}", "", f"`{result.command}`", ""]
    lines += [f"- {fact}" for fact in list_facts(result)]
    for table in compare_with_paper(result):
        lines += [
            "",
            f"## {table.heading}",
            "",
            markdown_table(list_headers(table), flatten_rows(table)),
        ]
    if result.paper.claims:
        lines += ["", "The paper says:", "", *(f"- {claim}" for claim in result.paper.claims)]
    return "\n".join(lines) + "\n"


def to_latex(result: ExperimentResult) -> str:
    """Return the tables as LaTeX with the package booktabs; above them, the facts as comments."""
    item, preset = result.plan.experiment.paper_item, result.plan.preset.name
    blocks = ["\n".join(f"% {' '.join(fact.split())}" for fact in list_facts(result))]
    for table in compare_with_paper(result):
        printed = table.printed
        heads = " & ".join(
            rf"\multicolumn{{2}}{{c}}{{{escape(column)}}}" if both else escape(column)
            for column, both in zip(table.columns, printed, strict=True)
        )
        sides = " & ".join("paper & here" if both else "here" for both in printed)
        shape = "".join("rr" if both else "r" for both in printed)
        rows = [" & ".join(map(escape, row)) + r" \\" for row in flatten_rows(table)]
        blocks.append(
            "\n".join(
                [
                    f"% {item}, {table.heading}; preset {preset}",
                    rf"\begin{{tabular}}{{l{shape}}}",
                    r"\toprule",
                    rf"& {heads} \\",
                    rf"& {sides} \\",
                    r"\midrule",
                    *rows,
                    r"\bottomrule",
                    r"\end{tabular}",
                ]
            )
        )
    return "\n\n".join(blocks) + "\n"


def list_facts(result: ExperimentResult) -> list[str]:
    """Return what a reader must know to judge the numbers."""
    plan = result.plan
    counts = [len(result.of(arm.name, bench.name)) for arm in result.arms for bench in result.benches]
    least, most = min((c for c in counts if c), default=0), max(counts, default=0)
    trials = str(most) if least == most else f"{least} to {most}"
    cut_short = f", stopped after {plan.max_steps} steps: the numbers mean nothing" if plan.max_steps else ""
    said = [f"Preset {plan.preset.name} ({plan.preset.about}){cut_short}."]
    said.append(
        f"Trials: {trials}; {result.minutes:.1f} minutes of training "
        f"({result.core_minutes:.1f} core-minutes). Here: mean ± standard deviation."
    )
    if result.missing:
        said.append(f"Not finished: {result.missing} of {len(plan.trials)} trials are still to be done.")
    if result.deviations:
        said.append(f"{DEVIATIONS}{'; '.join(result.deviations)}.")
    said += describe_family(result)
    said += [
        f"{SEEDS}{describe_seeds(result)}. {describe_splits(result)}Versions: {describe_versions(result)}."
    ]
    said += [f"Without data, left out: {bench} ({why})." for bench, why in plan.left_out.items()]
    said += list(plan.experiment.notes)
    labels = {arm.name: arm.label for arm in result.arms}
    said += [f"{labels[row]}: {note}" for row, note in result.paper.notes.items() if row in labels]
    said += sorted({f"{note}." for trial in result.trials for note in trial.notes})
    return said


def escape(text: str) -> str:
    """Escape a text for LaTeX.

    >>> escape("A_nno 5 %")
    'A\\\\_nno 5 \\\\%'
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _build_table(
    result: ExperimentResult, heading: str, cells: Sequence[tuple[Bench, Column]], labels: Sequence[str]
) -> Compared:
    rows = tuple(
        (_label_row(result, arm), tuple(_format_cell(result, arm, bench, column) for bench, column in cells))
        for arm in result.arms
    )
    return Compared(heading, tuple(labels), rows)


def _label_row(result: ExperimentResult, arm: Arm) -> str:
    """Return the row's name and, if it is empty, why."""
    if arm.needs and not any(trial.arm == arm.name for trial in result.trials):
        return f"{arm.label} (needs --{arm.needs.replace('_', '-')})"
    return arm.label


def _format_cell(result: ExperimentResult, arm: Arm, bench: Bench, column: Column) -> tuple[str, str]:
    printed = result.paper.get(arm.name, bench.name, column.metric)
    paper = NOT_MEASURED if printed is None else f"{printed:.2f}"
    found = result.summary(arm.name, bench.name, column.metric)
    if found is None:
        return paper, NOT_MEASURED
    scale = 100.0 if column.percent else 1.0
    spread = "" if found.std is None else f" ± {scale * found.std:.2f}"
    return paper, f"{scale * found.mean:.2f}{spread}"
