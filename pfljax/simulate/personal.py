"""Loads all personal models of a run: their parameters and their predictions."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.core import frozen
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import ClientData, RunState, Task
from pfljax.data import Federation
from pfljax.engine.offload_programs import block_size
from pfljax.engine.state import client_shape, join_stacks, split_ids
from pfljax.evaluation.predictions import predict_examples
from pfljax.evaluation.programs import client_models, score_models
from pfljax.evaluation.views import PERSONAL
from pfljax.runs import folder
from pfljax.runs.result import result
from pfljax.simulate import export
from pfljax.simulate.blocks import Values, by_architecture, in_blocks, take
from pfljax.simulate.population import open_to_read
from pfljax.simulate.simulation import Architecture, Simulation

COLUMNS = ("client", "example", "label", "prediction", "probability")
CONFUSION = "confusion"


def personal_models(
    path: str | Path, federation: Federation | None = None, task: Task | None = None
) -> Any:
    """The parameters of all personal models, stacked over clients.

    If there are several architectures, it is a tuple with a stack for each of them:
    client k has the architecture number k modulo the number of `models`. A run with a
    federation or a task of your own needs them here again.

    Raises:
      FolderError, ValueError: `path` is not a finished run.
    """
    sim, federation, state, states = _load(path, federation, task)
    ids = np.arange(federation.num_clients)
    stacks = []
    members = split_ids(sim.setting, ids)
    for architecture, clients in zip(sim.architectures, members, strict=True):
        width = _width(sim, architecture)
        models = client_models(architecture.setting, PERSONAL, width)
        models = functools.partial(models, public=federation.public)
        train = take(federation.train, clients)
        stack = in_blocks(models, state, _blocks(sim), states, clients, (train,))
        stacks.append(frozen.complete(architecture.task, stack, stacked=True))
    return join_stacks(sim.setting, stacks)


def predictions(
    path: str | Path,
    federation: Federation | None = None,
    task: Task | None = None,
    *,
    client: int | None = None,
) -> dict[str, np.ndarray]:
    """The predictions of personal models for their clients' test examples, as columns.

    `client`, `example` (the number of the example among the client's, from 0), `label`,
    `prediction` (-1 if logits are not finite) and its `probability` have a value for
    each example. A target of D columns has as many in these. Real targets have no
    probability. Classes have `confusion` i64[n, K, K], which counts the examples of
    each of `clients` by label and prediction. If clients or classes have names, these
    are `client_names` [n] and `class_names` [K]. With the argument `client` there is
    only this client; `federation` and `task` are as in `personal_models`.

    Raises:
      FolderError, ValueError: `path` is not a finished run, or has no such client.
    """
    sim, federation, state, states = _load(path, federation, task)
    if client is not None:
        export.check_client(client, federation.num_clients)
    ids = np.arange(federation.num_clients) if client is None else np.array([client])
    by_client = _predict_clients(sim, federation, state, states, ids)
    return _columns(federation, ids, by_client)


def write(columns: dict[str, np.ndarray], out: Path) -> list[Path]:
    """Writes `predictions` to an .npz, or to .csv files.

    In a cell, the columns of a target are separated by spaces.
    """
    export.check_file(out)
    if out.suffix != ".csv":
        folder.write_arrays(out, columns)
        return [out]
    beside = out.with_name(f"{out.stem}_{CONFUSION}.csv")
    export.check_file(beside)
    names = [name for name in COLUMNS if name in columns]
    by_example = [_name(columns, name, columns[name]) for name in names]
    folder.write_lines(out, names, zip(*by_example, strict=True))
    if CONFUSION not in columns:
        return [out]
    counts = columns[CONFUSION]
    client, label, prediction = np.nonzero(counts)
    by_cell = [
        _name(columns, "client", columns["clients"][client]),
        _name(columns, "label", label),
        _name(columns, "prediction", prediction),
        counts[client, label, prediction].tolist(),
    ]
    header = ("client", "label", "prediction", "examples")
    folder.write_lines(beside, header, zip(*by_cell, strict=True))
    return [out, beside]


def _name(columns: dict[str, np.ndarray], name: str, values: np.ndarray) -> list[Any]:
    """The values of a column, with the names of clients and classes that have one."""
    if values.ndim > 1:
        return [" ".join(map(str, row)) for row in values.tolist()]
    kind = "client_names" if name == "client" else "class_names"
    if name not in ("client", "label", "prediction") or kind not in columns:
        return values.tolist()
    numbers = columns["clients"] if name == "client" else range(len(columns[kind]))
    named = dict(zip(map(int, numbers), columns[kind].tolist(), strict=True))
    # The prediction of logits that are not finite has no name.
    return [named.get(value, value) for value in values.tolist()]


def _load(
    path: str | Path, federation: Federation | None, task: Task | None
) -> tuple[Simulation, Federation, RunState, Callable[[Any], Any]]:
    """Loads (simulation, federation, state, a function of ids to stacked states)."""
    result(path)  # raises an error unless it is finished
    sim, federation, state = export.load_state(path, federation, task)
    population = open_to_read(sim, Path(path), state)
    return sim, federation, state, functools.partial(population.states, state)


def _predict_clients(
    sim: Simulation,
    federation: Federation,
    state: RunState,
    states: Callable[[Any], Any],
    ids: np.ndarray,
) -> Values:
    """`predict_examples` of these clients, arrays [n, most examples]."""
    most = max(1, int(np.max(federation.test.size)))

    def evaluator(architecture: Architecture) -> Callable[..., Any]:
        setting, width = architecture.setting, _width(sim, architecture)
        models = client_models(setting, PERSONAL, width)

        def predict(model: Any, data: ClientData, batch_size: int, _: None) -> Any:
            predict_batch = functools.partial(setting.algorithm.predict, model)
            return predict_examples(
                predict_batch, data, batch_size, most, federation.kind
            )

        # In two programs, to have the bits of evaluations.
        scores = score_models(predict, setting.local.batch_size, setting.mesh, width)

        def evaluate(state: Any, clients: Any, ids: Any, train: Any, test: Any) -> Any:
            return scores(models(state, clients, ids, train, federation.public), test)

        return evaluate

    parts = take(federation.train, ids), take(federation.test, ids)
    return by_architecture(_blocks(sim), evaluator, state, states, ids, parts)


def _columns(
    federation: Federation, ids: np.ndarray, by_client: Values
) -> dict[str, np.ndarray]:
    """The examples of all clients one after another, and the confusion of each."""
    size = np.asarray(federation.test.size)[ids]
    offset = np.asarray(federation.test.offset)[ids]
    most = by_client["prediction"].shape[1]
    which, example = np.nonzero(np.arange(most) < size[:, None])
    y = np.asarray(federation.test.examples.y)
    columns = {"label": y[offset[which] + example]}
    columns |= {name: values[which, example] for name, values in by_client.items()}
    for name, values in columns.items():
        if values.shape[1:] == (1,):
            columns[name] = values[:, 0]
    columns |= {"client": ids[which], "example": example, "clients": ids}
    manifest = federation.manifest
    if "client_names" in manifest:
        columns["client_names"] = np.array(manifest["client_names"])[ids]
    if federation.kind != "classes":
        return columns
    label, prediction = columns["label"], columns["prediction"]
    classes = federation.num_classes
    confusion = np.zeros((len(ids), classes, classes), np.int64)
    known = prediction >= 0
    np.add.at(confusion, (which[known], label[known], prediction[known]), 1)
    columns[CONFUSION] = confusion
    if "class_names" in manifest:
        columns["class_names"] = np.array(manifest["class_names"])
    return columns


def _width(sim: Simulation, architecture: Architecture) -> int:
    """The number of clients at once, as in evaluations."""
    return architecture.setting.width or sim.setting.selection.cohort


def _blocks(sim: Simulation) -> Simulation:
    """The simulation with smaller blocks, which also hold a model of each client."""
    block = sim.block
    for each in sim.architectures:
        client = client_shape(each.setting.algorithm, each.task)
        block = min(block, block_size((client, shapes_of_model(each.task))))
    return sim._replace(block=block)
