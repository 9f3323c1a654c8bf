"""Seeds, numbers and cohort sizes of one experiment, run as one compiled program.

    runs = hyper x settings x cohorts x seeds, dealt to the devices
    each device: one run after another on a CPU, else all under one vmap

Swept numbers are traced, so other values compile nothing. Runs that do not fit in
memory together go through the same program in slices of equal size.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pfljax import build, config, devices, folder, parts, registry, runs
from pfljax.config import Experiment
from pfljax.data import Federation
from pfljax.models import check_task
from pfljax.parts import Shape
from pfljax.types import Task

NUMBERS = ("lr", "lr_decay", "momentum", "weight_decay")


@dataclass(frozen=True)
class Sweep:
    """What R runs gave over T evaluations of C clients, on their test rows."""

    experiment: Experiment  # what the runs share
    runs: list[dict[str, Any]]  # seed, cohort, swept settings and hyper of each
    round: np.ndarray  # i[T], rounds finished at each evaluation
    train_loss: np.ndarray  # f32[R, rounds]
    metrics: dict[str, np.ndarray]  # "personal/accuracy", ...: f32[R, T, C]
    test_size: np.ndarray  # i32[R, C]; metrics of a client without rows are NaN
    at_once: int  # runs of one call of the program

    def write(self, path: str | Path) -> None:
        """Writes sweep.npz and sweep.json into the folder `path`."""
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        arrays = {name: getattr(self, name) for name in ("round", "train_loss")}
        arrays |= {"test_size": self.test_size, **self.metrics}
        folder.write_arrays(path / "sweep.npz", arrays)
        told = {"experiment": config.to_dict(self.experiment), "runs": self.runs}
        folder.write_json(path / "sweep.json", told | {"at_once": self.at_once})

    def table(self) -> str:
        """Markdown of the last evaluation: means over clients, ± std over seeds."""
        rows: dict[tuple, list[int]] = {}
        for index, run in enumerate(self.runs):
            point = {**run["hyper"], **run}
            del point["hyper"], point["seed"]
            rows.setdefault(tuple(point.items()), []).append(index)
        names = [name for name, _ in next(iter(rows))]
        head = [*names, "seeds", *self.metrics]
        lines = [head, ["---"] * len(head)]
        for point, members in rows.items():
            cells = [f"{value:g}" for _, value in point]
            cells += [str(len(members))]
            lines.append(cells + [self._cell(name, members) for name in self.metrics])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"

    def _cell(self, name: str, members: list[int]) -> str:
        """Mean and sample standard deviation over these runs."""
        here = zip(
            self.metrics[name][members, -1], self.test_size[members] > 0, strict=True
        )
        means = np.array([values[has].mean() for values, has in here])
        spread = f" ± {means.std(ddof=1):.4f}" if len(means) > 1 else ""
        return f"{means.mean():.4f}{spread}"


def sweep(
    experiment: Experiment,
    *,
    seeds: Sequence[int] | None = None,
    hyper: Mapping[str, Sequence[float]] | None = None,
    cohort: Sequence[int] | None = None,
    federation: Federation | Callable[[int], Federation] | None = None,
    task: Task | None = None,
    at_once: int | None = None,
    lanes: int | None = None,
    **settings: Sequence[float],
) -> Sweep:
    """Every combination of the values as a run of its own; equal to it to 1e-5.

    Judged are personal and server models on test rows; `validation`, `unseen` and
    `trained` are dealt with, but not judged.

    Args:
      experiment: all that is not swept.
      seeds: each with the partition that a run of that seed has.
      hyper: values of numeric options of the method, by name.
      cohort: sizes; the program draws the largest and lets the rest idle.
      federation: clients of your own, or a function of the seed that makes them.
      task: a model of your own; the program is then compiled at every call.
      at_once: most runs in one call, at least one a device; None is what fits.
      lanes: runs of a device under one vmap; None is 1 on a CPU, else all.
      **settings: values of lr, lr_decay, momentum or weight_decay.

    Raises:
      ValueError: something is unknown, out of range, or changes the program.
      MemoryError: not even one run fits.
    """
    devices.prepare()
    _check_call(at_once, lanes)
    cohort = [experiment.cohort] if cohort is None else cohort
    axes = {"cohort": cohort, "seed": [experiment.seed] if seeds is None else seeds}
    axes = {name: _values(name, given) for name, given in {**settings, **axes}.items()}
    options = {name: _values(name, given) for name, given in (hyper or {}).items()}
    _check_names(experiment, options, settings, len(axes["cohort"]) > 1)
    given = {
        s: federation(s) if callable(federation) else federation for s in axes["seed"]
    }
    experiment = build.truthful(experiment, next(iter(given.values())), task)
    experiment = experiment.replace(cohort=max(axes["cohort"]))
    points = _points(axes, options)
    for point in points:
        own = {"hyper": dict(experiment.hyper) | point["hyper"]}
        config.check(experiment.replace(**point | own), own_model=task is not None)
    shape, data, places = _gather(experiment, given, task)
    _check_traceable(experiment, shape, task, options)
    inputs = _inputs(points, places, list(settings), list(options))
    count = min(devices.choose(experiment.devices, len(points)), len(points))
    found, size = runs.run_all(
        _static(experiment, settings, options),
        shape, data, inputs, count, at_once, lanes, task,
    )  # fmt: skip
    return Sweep(
        experiment,
        points,
        np.asarray(runs.evaluations(experiment)),
        found.loss,
        found.metrics,
        data.test[1][inputs.federation],
        size,
    )


def _check_call(at_once: int | None, lanes: int | None) -> None:
    for name, value in {"at_once": at_once, "lanes": lanes}.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; expected at least 1")
    if jax.process_count() > 1:
        raise ValueError("a sweep runs in one process, with all devices of one machine")


def _values(name: str, given: Any) -> list[Any]:
    """The values to sweep, as Python numbers."""
    if isinstance(given, str | int | float) or not len(given):
        raise ValueError(f"{name} is {given!r}; expected a list of values to sweep")
    values = [v.item() if isinstance(v, np.generic) else v for v in given]
    if len(set(values)) < len(values):
        raise ValueError(f"{name} is {values}; give every value once")
    return values


def _check_names(
    experiment: Experiment,
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
    cohorts: bool,
) -> None:
    """Refuses what is no number of the program."""
    name = experiment.algorithm
    factory = registry.find("algorithm", registry.algorithms(), name)
    defaults = registry.defaults(factory)
    numeric = [option for option in defaults if type(defaults[option]) is float]
    wrong = [setting for setting in settings if setting not in NUMBERS]
    wrong += [f"hyper {option}" for option in options if option not in numeric]
    if wrong:
        raise ValueError(_refusal(", ".join(wrong), name, numeric))
    if cohorts and (experiment.selection != "uniform" or experiment.stragglers):
        raise ValueError(
            "cohort can be swept where it is drawn uniformly and has no stragglers; "
            "make every size an experiment of its own"
        )


def _refusal(wrong: str, method: str, numeric: list[str]) -> str:
    can = ", ".join(["seeds", "cohort", *NUMBERS])
    options = f"; of hyper: {', '.join(numeric)}" if numeric else ""
    return (
        f"{wrong} of {method} cannot be swept in one program; can be: {can}{options}. "
        "Make every other value an experiment of its own"
    )


def _points(
    axes: Mapping[str, list[Any]], options: Mapping[str, list[Any]]
) -> list[dict[str, Any]]:
    """Every combination as settings by name, and `hyper`; the seed changes fastest."""
    return [
        dict(zip(axes, own, strict=True))
        | {"hyper": dict(zip(options, of_method, strict=True))}
        for of_method in itertools.product(*options.values())
        for own in itertools.product(*axes.values())
    ]


def _gather(
    experiment: Experiment, given: Mapping[int, Any], task: Task | None
) -> tuple[Shape, runs.Data, dict[int, int]]:
    """(shape of all federations, their rows, which of them is a seed's)."""
    found = {
        seed: build.federation(experiment.replace(seed=seed), given[seed])[0]
        for seed in given
    }
    shapes = {seed: parts.shape_of(experiment, f) for seed, f in found.items()}
    (first, shape), *others = shapes.items()
    for seed, other in others:
        if other != shape:
            names = [n for n in Shape._fields if getattr(other, n) != getattr(shape, n)]
            raise ValueError(
                f"clients of seeds {first} and {seed} differ in {', '.join(names)}; "
                "sweep one seed at a time"
            )
    if task is not None:
        check_task(task, shape.input_shape, shape.num_classes)
    distinct = list({id(f): f for f in found.values()}.values())
    places = {
        seed: [id(other) for other in distinct].index(id(f))
        for seed, f in found.items()
    }
    return shape, runs.stack(distinct), places


def _check_traceable(
    experiment: Experiment, shape: Shape, task: Task | None, options: Mapping[str, Any]
) -> None:
    """Refuses options on whose value the method decides while it is built."""
    task = task or parts.make_task(experiment, shape)

    def refused(name: str) -> bool:
        def built(value: Any) -> None:
            hyper = dict(experiment.hyper) | {name: value}
            parts.make_setting(
                experiment.replace(hyper=hyper, devices=None), task, shape
            )

        try:
            jax.eval_shape(built, jax.ShapeDtypeStruct((), np.float32))
        except jax.errors.ConcretizationTypeError:
            return True
        return False

    wrong = [name for name in options if refused(name)]
    if wrong:
        method = experiment.algorithm
        defaults = registry.defaults(registry.algorithms()[method])
        numeric = [n for n in defaults if type(defaults[n]) is float and not refused(n)]
        wrong = ", ".join(f"hyper {name}" for name in wrong)
        raise ValueError(_refusal(wrong, method, numeric))


def _static(
    experiment: Experiment, settings: Mapping[str, Any], options: Mapping[str, Any]
) -> Experiment:
    """What of the experiment the program depends on."""
    same = experiment.replace(seed=0, out=None, label=None, baseline=None, keep=2)
    hyper = {k: v for k, v in experiment.hyper if k not in options}
    swept = {name: getattr(Experiment(), name) for name in settings}
    return same.replace(**swept, hyper=hyper, devices=None)


def _inputs(
    points: list[dict[str, Any]],
    places: Mapping[int, int],
    settings: list[str],
    options: list[str],
) -> runs.Inputs:
    """The points as arrays over the runs."""

    def column(name: str, of: Sequence[Mapping[str, Any]], dtype: Any) -> np.ndarray:
        return np.array([point[name] for point in of], dtype)

    cohort = column("cohort", points, np.int32)
    of_method = [point["hyper"] for point in points]
    return runs.Inputs(
        column("seed", points, np.int32),
        np.array([places[point["seed"]] for point in points], np.int32),
        cohort if len(set(cohort.tolist())) > 1 else None,
        {name: column(name, points, np.float32) for name in settings},
        {name: column(name, of_method, np.float32) for name in options},
    )
