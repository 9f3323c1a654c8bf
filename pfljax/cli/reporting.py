"""What `pfljax report` does with run folders, or with that of a sweep or comparison."""

from collections.abc import Sequence
from pathlib import Path

from pfljax.report import write_comparison, write_sweep_report
from pfljax.runs import names


def report(runs: Sequence[Path], out: Path | None, targets: Sequence[float]) -> str:
    """Writes the page of a comparison or a sweep to `out`; its tables, and where it is.

    None is the folder of the sweep or of the comparison, if one alone is given, else
    one named by the runs and targets.

    Raises:
      ValueError: there is no run; and what the report raises.
    """
    if not runs:
        raise ValueError("no run folder is given; expected pfljax report RUN ...")
    first = runs[0]
    if len(runs) == 1 and (first / "sweep.json").exists():
        page = (out or first) / "sweep.html"
        replaced = out is not None and page.exists()
        tables = write_sweep_report(first, page.parent, targets)
    else:
        own = first if len(runs) == 1 and _is_comparison(first) else None
        folder = out or own or Path(names.comparison(runs, targets))
        page = folder / "comparison.html"
        replaced = out is not None and page.exists()
        tables = _compare(runs, folder, targets)
    # A folder that nobody named is of these runs alone, and so is the page in it.
    earlier = ", in the place of an earlier one" if replaced else ""
    return f"{tables}\nsee {page}{earlier}"


def _compare(given: Sequence[Path], out: Path, targets: Sequence[float]) -> str:
    """The tables of the runs, those of comparisons by the folders in them."""
    runs: list[Path] = []
    unfinished: list[Path] = []
    for folder in given:
        if not _is_comparison(folder):
            runs.append(folder)
            continue
        for run in _runs_of(folder):
            is_finished = (run / "summary.json").is_file()
            (runs if is_finished else unfinished).append(run)
    if unfinished and not runs:
        raise ValueError(
            f"no run of {', '.join(map(str, given))} is finished; its command goes on"
        )
    return write_comparison(runs, out, targets, unfinished=unfinished)


def _is_comparison(folder: Path) -> bool:
    """Whether it has the runs of `pfljax compare`, and is none itself."""
    return not (folder / "config.json").exists() and bool(_runs_of(folder))


def _runs_of(folder: Path) -> list[Path]:
    """The run folders METHOD/sSEED of a comparison, local training first."""
    found = []
    for config in folder.glob("*/s*/config.json"):
        seed = config.parent.name.removeprefix("s")
        if seed.isdecimal():
            method = config.parent.parent.name
            found.append((method != "local", method, int(seed), config.parent))
    return [run for *_, run in sorted(found)]
