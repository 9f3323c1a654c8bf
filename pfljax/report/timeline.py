"""Figures of a run's virtual time: accuracy by seconds, and who was busy when."""

from typing import TYPE_CHECKING, Any

import numpy as np

from pfljax.report import spent
from pfljax.report.figures import COLOURS, models_of, over_clients
from pfljax.report.runs import Run
from pfljax.report.style import BAND, GREY, GRID, PALETTE, label_ends, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROUNDS = 12  # of the timeline
MOST_CLIENTS = 40  # with a lane of their own
REPORTED = PALETTE[0]
LATE = PALETTE[1]


def accuracy_by_seconds(run: Run) -> "Figure | None":
    """Test accuracy over virtual seconds: mean and 10-90 % band over clients."""
    models = models_of(run)
    if not models or not spent.has_clock(run):
        return None
    figure, (axes,) = new_figure(5.2, 3.2)
    seconds = spent.at(run, run.per_client["round"], "seconds")
    # A line through one point is not seen.
    marker = "o" if len(seconds) == 1 else None
    ends = []
    for model, text in models.items():
        colour = COLOURS[model]
        values = 100 * run.per_client[f"{model}/test/accuracy"]
        mean, low, high = over_clients(values)
        axes.fill_between(seconds, low, high, color=colour, **BAND)
        axes.plot(seconds, mean, color=colour, marker=marker)
        ends.append((mean[-1], text, colour))
    axes.set(xlabel=spent.AXES["seconds"], ylabel="test accuracy (%)")
    axes.set_xlim(0, run.rounds[-1]["clock"] or 1)
    axes.grid(axis="y", **GRID)
    label_ends(axes, ends)
    return figure


def timeline(run: Run) -> "Figure | None":
    """The turns of the first rounds, a lane a client, by virtual time."""
    lines = [line for line in run.rounds if line.get("turns")][:MOST_ROUNDS]
    if not lines:
        return None
    turns = [turn for line in lines for turn in line["turns"]]
    clients = sorted({client for client, *_ in turns})[:MOST_CLIENTS]
    lane = {client: place for place, client in enumerate(clients)}
    figure, (axes,) = new_figure(8.4, min(6.5, 1.4 + 0.17 * len(clients)))
    for reported, colour in ((True, REPORTED), (False, LATE)):
        shown = [t for t in turns if t[3] == reported and t[0] in lane]
        _draw(axes, shown, lane, colour)
    for line in lines:
        axes.axvline(line["clock"], color=GREY, linewidth=0.8, zorder=0)
    many = len(clients) > 20
    ticks = range(0, len(clients), 5 if many else 1)
    axes.set_yticks(list(ticks), [str(clients[place]) for place in ticks])
    axes.set_ylim(len(clients) - 0.4, -0.6)
    axes.set_xlim(0, lines[-1]["clock"])
    axes.set(xlabel=spent.AXES["seconds"], ylabel="client")
    return figure


def _draw(axes: Any, turns: list[Any], lane: dict[int, int], colour: str) -> None:
    """A bar a turn, its end marked by a gap: turns may follow one another at once."""
    places = [lane[client] for client, *_ in turns]
    start = np.array([start for _, start, _, _ in turns])
    end = np.array([end for _, _, end, _ in turns])
    axes.barh(
        places,
        end - start,
        left=start,
        height=0.6,
        color=colour,
        edgecolor="white",
        linewidth=0.8,
    )
