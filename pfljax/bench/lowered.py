"""What GPUs and TPUs will get, without one: work, memory and bounds of a local step.

From the programs that are lowered for them and from published figures. Nothing of it is
measured on a device.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from pfljax.bench import local_step, lowered_tables, roofline
from pfljax.bench.catalogue import WORKLOADS, Workload
from pfljax.core import tree
from pfljax.core.precision import PRECISIONS
from pfljax.registry import find
from pfljax.runs.folder import write_json
from pfljax.runtime import files

NAME = "lowered"
WIDTHS = (10, 100, 1000)
FORMS = {"columns": "auto", "groups": "lax"}  # of kernels by client, and `conv` for it
PLATFORMS = ("cuda", "tpu")
CASES = ("W1", "W2", "W10")
WITHOUT_CONVOLUTIONS = ("W1",)
Result = dict[str, Any]


def run(
    names: Sequence[str],
    *,
    rounds: int | None = None,
    repeats: int = 3,
    methods: Sequence[str] = (),
    peer: str | None = None,
    out: str | Path = "runs/bench",
    scale: float = 1.0,
    cases: Sequence[str] = CASES,
    widths: Sequence[int] = WIDTHS,
) -> str:
    """Markdown tables of what can be known; lowered.json in `out`.

    Args:
      names: "lowered" alone.
      rounds: must be None.
      repeats: of no meaning, for nothing is timed.
      methods: must be empty; the step is FedAvg's.
      peer: must be None.
      out: the folder to write to.
      scale: of no meaning: neither clients nor rows are made.
      cases: workloads.
      widths: clients under one vmap, ascending.

    Raises:
      ValueError: for other names, or an option that nothing is timed with.
    """
    if list(names) != [NAME] or peer is not None or methods or rounds is not None:
        raise ValueError(
            f"{NAME} times nothing: it takes no other workloads, peer, methods or "
            "rounds; give it a command of its own"
        )
    workloads = {name: find("workload", WORKLOADS, name) for name in cases}
    folder = files.make_folder(Path(out))
    results = []
    for name, workload in workloads.items():
        results.append(_case(name, workload, widths))
        print(f"{name}: lowered and compiled", file=sys.stderr, flush=True)
        written = {
            "jax": jax.__version__,
            "devices": [device._asdict() for device in roofline.DEVICES],
            "results": results,
        }
        write_json(folder / "lowered.json", written)
    return lowered_tables.markdown(results)


def _case(name: str, workload: Workload, widths: Sequence[int]) -> Result:
    """All figures of one model."""
    step = local_step.step_of(workload)
    work = local_step.flops(step)
    return {
        "workload": name,
        "model": workload.model,
        "batch_size": workload.batch_size,
        "parameter_bytes": tree.nbytes(step.params),
        "flops": work,
        "lowered_ops": {
            platform: local_step.lowered_ops(step, widths[0], platform)
            for platform in PLATFORMS
        },
        "forms": _forms(name, workload, widths),
        "precisions": {
            precision: _bounds(workload, precision, work) for precision in PRECISIONS
        },
    }


def _forms(name: str, workload: Workload, widths: Sequence[int]) -> dict[str, Result]:
    """What the proxy says of each form of convolution; of one if there is none."""
    chosen = {form: {"conv": conv} for form, conv in FORMS.items()}
    if name in WITHOUT_CONVOLUTIONS:
        chosen = {"-": {}}
    forms = {}
    for form, options in chosen.items():
        step = local_step.step_of(workload, **options)
        programs = {width: local_step.compiled(step, width) for width in widths}
        narrow = programs[widths[0]]
        forms[form] = {
            "kernels": narrow.kernels,
            "temporary": {str(n): programs[n].temporary for n in widths},
            "held": {str(n): programs[n].held for n in widths},
            "xla_bytes": local_step.xla_bytes(step, widths[0]),
        }
    return forms


def _bounds(workload: Workload, precision: str, work: int) -> Result:
    """Least bytes of a step, and by device the most steps of a client a second."""
    nbytes = local_step.least_bytes(local_step.step_of(workload, precision))
    bounds = {}
    for device in roofline.DEVICES:
        bound = roofline.bound(device, precision, work, nbytes)
        bounds[device.name] = {
            "flops_a_second": bound.flops,
            "by_memory": bound.by_memory,
            "steps_a_second": bound.times_a_second(work),
        }
    return {"least_bytes": nbytes, "intensity": work / nbytes, "bounds": bounds}
