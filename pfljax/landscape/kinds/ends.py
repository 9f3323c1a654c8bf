"""The two models of each client between which a line or a curve goes."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import Params
from pfljax.engine.contract import first_change
from pfljax.landscape.align import match_many, match_units
from pfljax.landscape.finished import Finished
from pfljax.landscape.stacked import num_clients
from pfljax.models.units import hidden_units
from pfljax.runs import claims, folder
from pfljax.runs.landscape_options import LandscapeOptions

# Clients -> the models where their lines begin and end; the first may be one for all.
Find = Callable[[Finished], tuple[Params, Params]]
Ends = tuple[Find, tuple[str, str]]  # and their names


def choose_ends(run: Finished, options: LandscapeOptions) -> Ends:
    """From the server's model to each client's, unless the options say otherwise.

    Raises:
      ValueError: the run has no such models, or the other run has other clients.
    """
    if options.other is not None:
        return _join_runs(run, _open_other(run, options.other))
    if options.endpoints:
        names = ("the first model of the mixture", "the second")
        return lambda part: part.endpoints(), names
    run.server()  # refuses a method without one
    setting = run.architecture.setting
    if setting.algorithm.personal is None:
        raise ValueError(
            f"{run.path} is a run of {run.method!r}, whose clients use the server's "
            "model, and a line to itself is a point; choose lines to another run "
            "(other), or another kind"
        )
    names = ("the server's model", "the client's own")
    return lambda part: (run.server(), part.models()), names


def _join_runs(run: Finished, other: Finished) -> Ends:
    """From each client's personal model in this run to that in the other."""
    for part in run.architectures():
        (twin, *rest) = other.take(part.ids).architectures()
        if rest or first_change(shapes_of_model(part.task), shapes_of_model(twin.task)):
            raise ValueError(
                f"clients have other models in {other.path} than in {run.path}, and "
                "there is no line between two architectures; choose runs of equal "
                "models"
            )

    def find(part: Finished) -> tuple[Params, Params]:
        (twin,) = other.take(part.ids).architectures()
        return part.models(), twin.models()

    here, there = (each.about.replace(", ", "'s model at ") for each in (run, other))
    return find, (here, f"{there} in {other.path.name}")


def _open_other(run: Finished, path: Path) -> Finished:
    """Reads another run on the same clients."""
    task = run.given[1]
    if folder.read_partition(path).get("given"):
        # It got its clients in Python, and is refused unless they are these.
        return Finished(path, run.federation, task)
    other = Finished(path, None, task)
    _check_same_clients(run, other)
    return other


def _check_same_clients(run: Finished, other: Finished) -> None:
    # Compares the examples as well, since a user's own data have no name.
    manifests = [folder.read_partition(each.path) for each in (run, other)]
    if not claims.same_clients(*manifests):
        raise ValueError(
            f"the clients of {other.path} are not those of {run.path}: their examples "
            "differ; choose runs of one data set, partition and data seed"
        )


def align(part: Finished, models: Params, to: Params | None = None) -> Params:
    """The models [C, ...] with their hidden units in an order that matches others'.

    `to` is one model, or one for each of them. With None, each matches the mean of the
    others (`match_many`).

    Raises:
      ValueError: the layers of the model are unknown.
    """
    if part.network is None:
        raise ValueError(
            "align needs the layers of the model, which a task of your own does not "
            "name; call landscape.match_many with landscape.hidden_units(network)"
        )
    units = hidden_units(part.network, tree.first(models))
    if to is None or num_clients(part.task, to, "to") is None:
        return match_many(units, models, to)[0]
    matched = [
        match_units(units, tree.take(to, k), tree.take(models, k))[0]
        for k in jnp.arange(len(part.ids))
    ]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *matched)
