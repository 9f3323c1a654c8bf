"""The work of `pfljax report`: of runs, or of the folder of a comparison or sweep."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pfljax.report import write_comparison, write_run_report
from pfljax.runs import names


def report(
    runs: Sequence[Path], out: Path | None, targets: Sequence[float], **options: Any
) -> str:
    """Writes the page; returns the screen, with the path of the page at its end.

    Args:
      runs: one run, several, or one folder of a comparison or sweep.
      out: where to write; None is the folder of what is alone, or one named by the
        runs and targets.
      targets: values of the metric that leads.
      options: of `write_comparison`.

    Raises:
      ValueError: there is no run; and what the report raises.
    """
    if not runs:
        raise ValueError("no run folder is given; expected pfljax report RUN ...")
    first = runs[0]
    is_alone = len(runs) == 1
    if is_alone and not _is_comparison(first):
        page = (out or first) / "report.html"
        if options.get("columns"):
            raise ValueError(
                f"--columns compares runs, but {first} is one run; give several"
            )
        of_a_run = ("figure_kinds", "target_window", "with_tables")
        for_a_run = {key: options[key] for key in of_a_run}
        text = write_run_report(first, page.parent, targets, **for_a_run)
    else:
        target = first if is_alone else Path(names.comparison(runs, targets))
        page = (out or target) / "comparison.html"
        text = _compare(runs, page.parent, targets, options)
    return f"{text}\n\n{page}"


def _compare(
    folders: Sequence[Path], out: Path, targets: Sequence[float], options: Any
) -> str:
    """Compares the runs; the folder of a comparison stands for its finished runs."""
    runs: list[Path] = []
    unfinished: list[Path] = []
    for folder in folders:
        if not _is_comparison(folder):
            runs.append(folder)
            continue
        for run in _list_runs(folder):
            is_finished = (run / "summary.json").is_file()
            (runs if is_finished else unfinished).append(run)
    if unfinished and not runs:
        raise ValueError(
            f"no run of {', '.join(map(str, folders))} is finished; its command goes on"
        )
    return write_comparison(runs, out, targets, unfinished, **options)


def _is_comparison(folder: Path) -> bool:
    """Whether it has the runs of a comparison or sweep, and is not a run itself."""
    if (folder / "sweep.json").exists():
        return True
    return not (folder / "config.json").exists() and bool(_list_runs(folder))


def _list_runs(folder: Path) -> list[Path]:
    """The run folders METHOD/sSEED of a comparison, local training first."""
    runs = []
    for config in folder.glob("*/s*/config.json"):
        seed = config.parent.name.removeprefix("s")
        if seed.isdecimal():
            method = config.parent.parent.name
            runs.append((method != "local", method, int(seed), config.parent))
    return [run for *_, run in sorted(runs)]
