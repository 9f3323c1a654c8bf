"""Copies the tables of results/ into the reports.

    python experiments/shared/include.py        # after new results; all reports

In a REPORT.md a table is between `<!-- results/x.md -->` and `<!-- /results/x.md -->`.
This script replaces it by the present content of the file.
`tests/experiments/test_reports.py` fails if the two differ.
"""

import re
from pathlib import Path

REPORTS = sorted(Path(__file__).parents[1].glob("*/REPORT.md"))
TABLE = re.compile(r"<!-- (results/\S+) -->\n.*?<!-- /\1 -->", re.DOTALL)


def included(report: Path) -> str:
    """The report, with each table as its file has it."""

    def table(mark: re.Match[str]) -> str:
        name = mark[1]
        text = (report.parent / name).read_text(encoding="utf-8").strip()
        return f"<!-- {name} -->\n{text}\n<!-- /{name} -->"

    return TABLE.sub(table, report.read_text(encoding="utf-8"))


def main() -> None:
    """Writes the reports anew."""
    for report in REPORTS:
        report.write_text(included(report), encoding="utf-8")


if __name__ == "__main__":
    main()
