"""How sharp each client's personal model of a finished run is."""

import jax
import numpy as np

from pfljax.core.types import ClientData
from pfljax.landscape.curvature import eigen, trace
from pfljax.landscape.curvature_figures import draw_clients
from pfljax.landscape.finished import Finished
from pfljax.landscape.kinds import blocks
from pfljax.landscape.kinds.record import RHO, Landscape, choose_rows, find_finite
from pfljax.landscape.sharpness import sharpness
from pfljax.report.frames import make_frame
from pfljax.runs.landscape_options import ROWS, LandscapeOptions

SHARPNESSES = ("greatest eigenvalue", "trace", "rise")  # are drawn and averaged


def compute_curvature(
    run: Finished, options: LandscapeOptions, store: blocks.Store
) -> Landscape:
    """How sharp each client's personal model is, on its own training examples."""
    find_rows = choose_rows(run, options.rows)

    def evaluate(part: Finished) -> dict[str, np.ndarray]:
        return _evaluate(part, find_rows(part).data, options.seed or 0)

    columns = blocks.compute_clients(store, "curvature", run, evaluate)
    sharpnesses = {name: columns[name] for name in SHARPNESSES}
    finite = find_finite(sharpnesses)
    means = [
        _mean_and_span(name, values[finite])
        for name, values in sharpnesses.items()
        if finite.any()
    ]
    count = len(run.ids)
    greatest_error = columns["trace error"][finite].max(initial=0)
    rows = ROWS[options.rows or "train"]
    return Landscape(
        arrays=columns,
        table=make_frame({"client": run.ids, **columns}),
        figures={"": draw_clients(sharpnesses)},
        text=f"{run.about}: the personal models of {count} clients, on {rows}; means "
        f"over clients (least to greatest), {finite.sum()} of {count} finite: "
        f"{', '.join(means) or 'none'}; the rise is of the loss, within {RHO} (SAM), "
        f"and the standard error of a trace is at most {greatest_error:.2g}",
        facts=f"On {rows}.",
    )


def _evaluate(part: Finished, data: ClientData, seed: int) -> dict[str, np.ndarray]:
    """The columns of clients of one architecture, [C] each."""
    models = part.models()
    # A block has keys of its own, by its first client.
    key = jax.random.fold_in(jax.random.key(seed), part.ids[0])
    eigen_key, trace_key = jax.random.split(key)
    leading = eigen(part.task, models, data, eigen_key, top=1, bottom=1)
    traces = trace(part.task, models, data, trace_key)
    steepness = sharpness(part.task, models, data, rho=RHO)
    return {
        "train_size": np.asarray(part.federation.train.size),
        "greatest eigenvalue": leading.values[:, 0],
        "least eigenvalue": leading.values[:, 1],
        "residual": leading.residuals[:, 0],
        "trace": traces.value,
        "trace error": traces.error,
        "rise": steepness.rise,
    }


def _mean_and_span(name: str, values: np.ndarray) -> str:
    least = values.min()
    greatest = values.max()
    return f"{name} {values.mean():.4g} ({least:.4g} to {greatest:.4g})"
