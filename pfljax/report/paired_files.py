"""The comparisons in pairs as Markdown, CSV and LaTeX, and their files."""

from pathlib import Path

from pfljax.report import latex
from pfljax.report.formats import csv_text, markdown, markdown_text
from pfljax.report.paired import COLUMNS, Paired
from pfljax.runtime import files

STEM = "comparison_paired"


def write_paired(compared: Paired, out: Path) -> None:
    """comparison_paired.md, .csv and .tex in `out`; those of before do not stay."""
    for suffix in ("csv", "md", "tex"):
        (out / f"{STEM}.{suffix}").unlink(missing_ok=True)
    parts = [answer(compared), paired_table(compared)]
    text = "\n".join(part for part in parts if part)
    if text:
        files.write_text(out / f"{STEM}.md", text)
    if compared.comparisons:
        files.write_text(out / f"{STEM}.csv", csv_paired(compared))
        table = compared.table
        whole = table._replace(caption=f"{table.caption} {compared.note}")
        files.write_text(out / f"{STEM}.tex", latex.long(whole))


def answer(compared: Paired) -> str:
    """Which method is better, a line a comparison, as Markdown; empty without any."""
    lines = "".join(f"- {markdown_text(line)}\n" for line in compared.lines)
    key = f"{compared.key}\n" if compared.key else ""
    return "\n".join(part for part in (lines, key) if part)


def paired_table(compared: Paired) -> str:
    """The table and which test answers what, as Markdown; empty without rows."""
    if not compared.comparisons:
        return ""
    table = compared.table
    return f"{table.caption}\n\n{markdown(table)}\n{compared.note}\n"


def csv_paired(compared: Paired) -> str:
    """Raw numbers, one line a comparison, with its words."""
    keys = [column.key for column in COLUMNS]
    lines: list[list] = [["method", "against", "n", "seeds", *keys, "words"]]
    for comparison, words in zip(compared.comparisons, compared.lines, strict=False):
        seeds = " ".join(map(str, comparison.pair.seeds))
        line: list = [comparison.method, comparison.against]
        line += [len(comparison.pair.seeds), seeds]
        line += [comparison.values[key] for key in keys]
        lines.append([*line, words])
    return csv_text(lines)
