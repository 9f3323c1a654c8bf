"""Tables in Markdown and LaTeX."""

from pfljax.report.frames import make_frame
from pfljax.report.tables import EMPTY, Table


def markdown(table: Table) -> str:
    """The table in Markdown, below its title; the best of a column is bold."""
    lines = [table.header, ["---"] * len(table.header)]
    for i, row in enumerate(table.rows):
        cells = []
        for j, cell in enumerate(row):
            text = _escape_markdown(cell)
            cells.append(f"**{text}**" if (i, j) in table.best else text)
        lines.append(cells)
    body = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"{table.caption}\n\n{body}"


def latex(table: Table) -> str:
    r"""The table in LaTeX, for `\usepackage{booktabs,graphicx}`."""
    frame = make_frame(table.rows, table.header)
    styler = frame.style.hide(axis="index").format(escape="latex")
    styler.format_index(escape="latex", axis="columns")

    bold = frame.map(lambda _: "")
    for cell in table.best:
        bold.iloc[cell] = "textbf:--rwrap;"
    caption = table.caption.replace("%", r"\%")
    text = styler.apply(lambda _: bold, axis=None).to_latex(
        hrules=True, caption=caption, position_float="centering"
    )
    for letter, command in LATEX.items():
        text = text.replace(letter, command)
    return text


LATEX = {"±": r"$\pm$", "²": "$^2$", EMPTY: "--"}
LATEX[r"\begin{tabular}"] = r"\resizebox{\textwidth}{!}{\begin{tabular}"
LATEX[r"\end{tabular}"] = r"\end{tabular}}"
LATEX |= {"α": r"$\alpha$", "λ": r"$\lambda$", "μ": r"$\mu$", "ν": r"$\nu$"}


def _escape_markdown(text: str) -> str:
    return "".join(f"\\{c}" if c in "\\|*`<_" else c for c in " ".join(text.split()))
