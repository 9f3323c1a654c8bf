"""How sharp each client's personal model of a finished run is."""

from functools import partial

import jax
import numpy as np

from pfljax.core.types import ClientData
from pfljax.landscape.curvature import eigen, trace
from pfljax.landscape.figures import draw_layers, draw_sharpness
from pfljax.landscape.finished import Finished
from pfljax.landscape.kinds import blocks, record
from pfljax.landscape.layers import find_layers
from pfljax.landscape.sharpness import sharpness
from pfljax.report.frames import make_frame
from pfljax.report.style import Figure
from pfljax.runs.landscape_options import ROWS, LandscapeOptions

SHARPNESSES = ("greatest eigenvalue", "trace", "rise")  # are drawn and averaged


def compute_curvature(
    run: Finished, options: LandscapeOptions, store: blocks.Store
) -> record.Landscape:
    """How sharp each client's personal model is, on its own training examples.

    Raises:
      ValueError: the curvature of `layers` is asked of several architectures.
    """
    if options.layers and len(run.architectures()) > 1:
        raise ValueError(
            f"{run.path} has clients of several architectures, whose layers differ; "
            "leave layers out"
        )
    find_rows = record.choose_rows(run, options.rows)

    def evaluate(part: Finished) -> dict[str, np.ndarray]:
        return _evaluate(part, find_rows(part).data, options)

    columns = blocks.compute_clients(store, "curvature", run, evaluate)
    sharpnesses = {name: columns[name] for name in SHARPNESSES}
    finite = record.find_finite(sharpnesses)
    means = [
        f"{name} {of.mean():.4g} ({of.min():.4g} to {of.max():.4g})"
        for name, values in sharpnesses.items()
        if len(of := values[finite])
    ]
    count = len(run.ids)
    greatest_error = columns["trace error"][finite].max(initial=0)
    rows = ROWS[options.rows or "train"]
    figures = {"": draw_sharpness(sharpnesses)}
    if options.layers:
        figures["_layers"] = _draw_layers(run, columns)
    return record.Landscape(
        arrays=columns,
        table=make_frame({"client": run.ids, **columns}),
        figures=figures,
        text=f"{run.about}: the personal models of {count} clients, on {rows}; means "
        f"over clients (least to greatest), {finite.sum()} of {count} finite: "
        f"{', '.join(means) or 'none'}; the rise is of the loss, within {record.RHO} "
        f"(SAM), and the standard error of a trace is at most {greatest_error:.2g}",
        facts=f"On {rows}.",
    )


def _evaluate(
    part: Finished, data: ClientData, options: LandscapeOptions
) -> dict[str, np.ndarray]:
    """The columns of clients of one architecture, [C] each."""
    models = part.models()
    # A block has keys of its own, by its first client.
    key = jax.random.fold_in(jax.random.key(options.seed or 0), part.ids[0])
    eigen_key, trace_key = jax.random.split(key)
    find_greatest = partial(eigen, part.task, models, data, eigen_key, top=1)
    leading = find_greatest(bottom=1)
    traces = trace(part.task, models, data, trace_key)
    steepness = sharpness(part.task, models, data, rho=record.RHO)
    by_layer = {}
    for name, of_layer in (traces.layers or {}).items() if options.layers else ():
        by_layer[f"trace/{name}"] = of_layer.value
        top = find_greatest(layer=name)
        by_layer[f"greatest eigenvalue/{name}"] = top.values[:, 0]
    return {
        "train_size": np.asarray(part.federation.train.size),
        "greatest eigenvalue": leading.values[:, 0],
        "least eigenvalue": leading.values[:, 1],
        "residual": leading.residuals[:, 0],
        "trace": traces.value,
        "trace error": traces.error,
        "rise": steepness.rise,
        **by_layer,
    }


def _draw_layers(run: Finished, columns: dict[str, np.ndarray]) -> Figure:
    layers = find_layers(run.task)
    by_layer = {
        quantity: {name: columns[f"{quantity}/{name}"] for name in layers}
        for quantity in ("greatest eigenvalue", "trace")
    }
    return draw_layers(by_layer)
