"""What a reader has to know before the numbers: runs that ended early or went wrong."""

from collections.abc import Sequence
from pathlib import Path

from pfljax.report.groups import Group
from pfljax.report.runs import Run
from pfljax.report.tables import problem_differences


def of_run(run: Run) -> list[str]:
    """What is to be said of a finished run, a sentence each; most have none."""
    sentences = []
    stopped = run.summary.get("stopped")
    if stopped:
        sentences.append(
            f"stopped early, after round {stopped['round']} of {stopped['of']}, by "
            f"{stopped['by']}."
        )
    if "diverged" in run.summary:
        sentences.append(f"has diverged: {run.summary['diverged']}.")
    return sentences


def of_groups(groups: Sequence[Group], unfinished: Sequence[Path] = ()) -> list[str]:
    """The same of the runs of a comparison, and which are left out as `unfinished`.

    Seeds of a method of which the same is to be said share a sentence.
    """
    notices = []
    for group in groups:
        seeds: dict[str, list[int]] = {}
        for run in group.runs:
            for sentence in of_run(run):
                seeds.setdefault(sentence, []).append(run.config["seed"])
        for sentence, of_seeds in seeds.items():
            which = "seeds" if len(of_seeds) > 1 else "seed"
            notices.append(f"{group.label}, {which} {_listed(of_seeds)}: {sentence}")
    runs = [run for group in groups for run in group.runs]
    differing = problem_differences(runs)
    if differing:
        notices.append(f"Not compared: the runs differ in {', '.join(differing)}.")
    elif len(groups) == 1:
        notices.append(f"Nothing is compared: {groups[0].label} is the only method.")
    lengths = sorted({run.summary["rounds"] for run in runs})
    if len(lengths) > 1:
        notices.append(f"Not all runs have as many rounds: {_listed(lengths)}.")
    if unfinished:
        notices.append(f"Not finished, and left out: {_listed(unfinished)}.")
    return notices


def _listed(values: Sequence[int | Path]) -> str:
    return ", ".join(map(str, values))
