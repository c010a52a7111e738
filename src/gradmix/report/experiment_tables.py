"""An experiment's numbers as tables, paper and here side by side: for the page, as Markdown, as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..experiments.declaration import Arm, Bench, Column
from ..experiments.results import ExperimentResult
from .experiment_origin import family_told, seeds_told, splits_told, versions_told
from .tables import NOT_MEASURED, markdown_table

NOT_IMPLEMENTED = "not yet implemented"
CUT = "Other than in the paper: "
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
        """Of each column, whether the paper has a number in it: if not, it needs no column of its own."""
        papers = zip(*([paper for paper, _ in pairs] for _, pairs in self.rows), strict=True)
        return tuple(any(cell != NOT_MEASURED for cell in column) for column in papers)

    def sides(self) -> list[tuple[str, int, int]]:
        """(header, which column, 0 for paper or 1 for here) of every cell of a row."""
        found = []
        for i, (column, printed) in enumerate(zip(self.columns, self.printed, strict=True)):
            if printed:
                found += [(f"{column} paper", i, 0), (f"{column} here", i, 1)]
            else:
                found.append((column, i, 1))
        return found


def compared_tables(result: ExperimentResult) -> list[Compared]:
    """One table with a column a bench where each has a single number, else a table a bench (or group)."""
    columns, benches = result.plan.experiment.columns, result.benches
    if len(columns) == 1:
        places = [(bench, columns[0]) for bench in benches]
        return [_table(result, columns[0].label, places, [bench.label for bench in benches])]
    groups = list(dict.fromkeys(column.group for column in columns))
    tables = []
    for bench in benches:
        for group in groups:
            chosen = [column for column in columns if column.group == group]
            heading = f"{bench.label} – {group}" if group else bench.label
            labels = [column.label for column in chosen]
            tables.append(_table(result, heading, [(bench, column) for column in chosen], labels))
    return tables


def split_headers(table: Compared) -> list[str]:
    """The header of every cell, in order: the row's name first."""
    return ["", *(header for header, _, _ in table.sides())]


def flat_rows(table: Compared) -> list[list[str]]:
    sides = table.sides()
    return [[label, *(pairs[i][side] for _, i, side in sides)] for label, pairs in table.rows]


def joined(table: Compared) -> tuple[list[str], list[list[str]]]:
    """Headers and rows with "paper / here" in one cell, half as wide: for the page."""
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
    """A page of Markdown: what was run, what was cut, the tables."""
    plan = result.plan
    lines = [f"# {plan.experiment.place}: {plan.experiment.title}", "", f"`{result.command}`", ""]
    lines += [f"- {fact}" for fact in facts(result)]
    for table in compared_tables(result):
        lines += ["", f"## {table.heading}", "", markdown_table(split_headers(table), flat_rows(table))]
    if result.paper.claims:
        lines += ["", "The paper says:", "", *(f"- {claim}" for claim in result.paper.claims)]
    return "\n".join(lines) + "\n"


def to_latex(result: ExperimentResult) -> str:
    """The tables for a paper with the package booktabs; above them, as comments, what must be known."""
    blocks = ["\n".join(f"% {' '.join(fact.split())}" for fact in facts(result))]
    for table in compared_tables(result):
        printed = table.printed
        heads = " & ".join(
            rf"\multicolumn{{2}}{{c}}{{{escape(column)}}}" if both else escape(column)
            for column, both in zip(table.columns, printed, strict=True)
        )
        sides = " & ".join("paper & here" if both else "here" for both in printed)
        shape = "".join("rr" if both else "r" for both in printed)
        rows = [" & ".join(map(escape, row)) + r" \\" for row in flat_rows(table)]
        blocks.append(
            "\n".join(
                [
                    f"% {result.plan.experiment.place}, {table.heading}; preset {result.plan.preset.name}",
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


def facts(result: ExperimentResult) -> list[str]:
    """What a reader must know before believing a number."""
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
    if result.cuts:
        said.append(f"{CUT}{'; '.join(result.cuts)}.")
    said += family_told(result)
    said += [f"{SEEDS}{seeds_told(result)}. {splits_told(result)}Versions: {versions_told(result)}."]
    said += [f"Without data, left out: {bench} ({why})." for bench, why in plan.left_out.items()]
    said += list(plan.experiment.notes)
    said += sorted({f"{note}." for trial in result.trials for note in trial.notes})
    return said


def escape(text: str) -> str:
    """For LaTeX.

    >>> escape("A_nno 5 %")
    'A\\\\_nno 5 \\\\%'
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _table(
    result: ExperimentResult, heading: str, places: Sequence[tuple[Bench, Column]], labels: Sequence[str]
) -> Compared:
    rows = tuple(
        (_label(result, arm), tuple(_cell(result, arm, bench, column) for bench, column in places))
        for arm in result.arms
    )
    return Compared(heading, tuple(labels), rows)


def _label(result: ExperimentResult, arm: Arm) -> str:
    """The row's name, and why it is empty if it is."""
    if not arm.implemented:
        return f"{arm.label} ({NOT_IMPLEMENTED})"
    if arm.needs and not any(trial.arm == arm.name for trial in result.trials):
        return f"{arm.label} (needs --{arm.needs.replace('_', '-')})"
    return arm.label


def _cell(result: ExperimentResult, arm: Arm, bench: Bench, column: Column) -> tuple[str, str]:
    printed = result.paper.get(arm.name, bench.name, column.metric)
    paper = NOT_MEASURED if printed is None else f"{printed:.2f}"
    found = result.summary(arm.name, bench.name, column.metric)
    if found is None:
        return paper, NOT_MEASURED
    scale = 100.0 if column.percent else 1.0
    spread = "" if found.std is None else f" ± {scale * found.std:.2f}"
    return paper, f"{scale * found.mean:.2f}{spread}"
