"""What `pfljax report` does with run folders, or with that of a sweep."""

from collections.abc import Sequence
from pathlib import Path

from pfljax.report import write_comparison, write_sweep_report
from pfljax.runs import names


def report(runs: Sequence[Path], out: Path | None, targets: Sequence[float]) -> str:
    """Writes the page of a comparison or a sweep to `out`; its tables, and where it is.

    None is a folder named by the runs and targets, or the sweep's own.

    Raises:
      ValueError: there is no run; and what the report raises.
    """
    if not runs:
        raise ValueError("no run folder is given; expected pfljax report RUN ...")
    if len(runs) == 1 and (runs[0] / "sweep.json").exists():
        page = (out or runs[0]) / "sweep.html"
        replaced = out is not None and page.exists()
        tables = write_sweep_report(runs[0], page.parent, targets)
    else:
        page = (out or Path(names.comparison(runs, targets))) / "comparison.html"
        replaced = out is not None and page.exists()
        tables = write_comparison(runs, page.parent, targets)
    # A folder that nobody named is of these runs alone, and so is the page in it.
    earlier = ", in the place of an earlier one" if replaced else ""
    return f"{tables}\nsee {page}{earlier}"
