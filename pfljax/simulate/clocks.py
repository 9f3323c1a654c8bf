"""Virtual time of a run, from its settings: devices, bytes, deadline and mode."""

import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import selection
from pfljax.channel import origins
from pfljax.channel.base import as_received
from pfljax.core.aggregation import Averaging
from pfljax.core.communication import (
    first_turn,
    shapes_of_client,
    shapes_of_server,
    trace_exchanges,
)
from pfljax.core.training import budget
from pfljax.core.types import Algorithm, Task
from pfljax.data import profiles
from pfljax.engine import Setting, clock, modes
from pfljax.engine.clock import Clock
from pfljax.engine.contract import first_change
from pfljax.engine.modes import Mode, Pending
from pfljax.runs.settings import Experiment
from pfljax.selection.base import full_work
from pfljax.simulate.architectures import client_traffic
from pfljax.simulate.shape import Shape


def with_clock(
    experiment: Experiment,
    setting: Setting,
    task: Task,
    shape: Shape,
) -> Setting:
    """The setting with the clock and the mode of the experiment, if it has any.

    Raises:
      ValueError: the profile does not fit the clients, or the mode the method.
    """
    profile = profiles.make(experiment.profile, shape.num_clients)
    mode = modes.make(experiment.mode, experiment.cohort)
    if profile is None:
        return setting
    # Bytes are those of the setting as it is: no clock changes them.
    down, up = client_traffic(setting, task, shape)
    timed = Clock(profile, down.astype(float), up.astype(float), experiment.deadline)
    if mode is not None:
        _check_mode(experiment, setting, task, shape)
        like = pending_shapes(setting, mode, task, shape)
        mode = mode._replace(like=like)
    return setting._replace(clock=timed, mode=mode)


def devices_crc(experiment: Experiment) -> int | None:
    """The checksum of the files of a profile and of a trace; None without any.

    Settings know them by their names alone.
    """
    names = [experiment.selection.options.get("file")]
    if experiment.profile.name == "file":
        names.insert(0, experiment.profile.options.get("path"))
    paths = [Path(str(name)) for name in names if name]
    read = [path.read_bytes() for path in paths if path.is_file()]
    return zlib.crc32(b"".join(read)) if read else None


def seconds_of_round(setting: Setting, sizes: Any) -> np.ndarray:
    """Expected seconds of a whole turn of each client, f64[C], of these rows i[C]."""
    assert setting.clock is not None
    # Also where a sweep traces a run: rows and devices are known there.
    with jax.ensure_compile_time_eval():
        steps = np.asarray(budget(setting.local, jnp.asarray(sizes)))
    return np.asarray(clock.mean_seconds(setting.clock, steps), np.float64)


def check_deadline(setting: Setting, sizes: Any) -> None:
    """Refuses a deadline that no client can ever meet, of these training rows i[C]."""
    timed = setting.clock
    if timed is None or timed.deadline is None:
        return
    least = np.asarray(budget(setting.local, jnp.asarray(sizes)))
    what = "its work"
    if setting.selection.work is not full_work:
        # Stragglers, say, may do one step alone.
        least = np.minimum(least, 1)
        what = "a single step"
    fastest = clock.fastest(timed, least)
    if fastest > timed.deadline:
        raise ValueError(
            f"deadline is {timed.deadline:g}, but the fastest client takes "
            f"{fastest:.3g} virtual seconds for {what}: nobody would ever report; "
            "choose a longer one"
        )


def _check_mode(
    experiment: Experiment, setting: Setting, task: Task, shape: Shape
) -> None:
    """Refuses methods and selections that asynchronous rounds cannot have."""
    mode = str(experiment.mode)
    chosen = experiment.selection.name
    if setting.selection.replacement or selection.learns(setting.selection):
        raise ValueError(
            f"mode {mode!r} draws clients before anything trains, each of them once "
            f"at a time, but selection {chosen!r} draws with replacement, or goes by "
            "rounds and what they brought; choose selection 'uniform'"
        )
    cohort = experiment.cohort
    if setting.selection.cohort != cohort:
        raise ValueError(
            f"mode {mode!r} has {cohort} clients train at any time, the cohort, but "
            f"selection {chosen!r} has places for {setting.selection.cohort}; choose "
            "selection 'uniform'"
        )
    through = setting.channel
    if through is not None and (
        through.lose is not None or through.receive is not as_received
    ):
        names = ", ".join(map(str, (*experiment.channel, *experiment.aggregation)))
        raise ValueError(
            f"mode {mode!r} merges uploads as they come, but one of {names} looks at "
            "those of a round together, or loses some; leave it out, or choose "
            "channels that act at the client alone, such as clip, gaussian or qsgd"
        )
    reason = misfit(setting.algorithm, task, shape)
    if reason:
        raise ValueError(
            f"mode {mode!r} merges uploads that are shaped as the server and averaged, "
            f"but {experiment.algorithm.name} {reason}; choose a method whose server "
            "averages models, such as fedavg, fedprox or ditto"
        )


def misfit(algorithm: Algorithm, task: Task, shape: Shape) -> str:
    """Why uploads of the method cannot be merged one by one; "" if they can."""
    if algorithm.then is not None:
        return "exchanges several times in a round"
    if algorithm.architecture is not None:
        return "has uploads that differ by architecture"
    if not isinstance(algorithm.aggregate, Averaging):
        return "makes more of uploads than their mean"

    (exchange,) = trace_exchanges(algorithm, task, 1, shape.input_shape)
    change = first_change(shapes_of_server(algorithm, task, 1), exchange.upload)
    if change is not None or not jax.tree.leaves(exchange.upload):
        return "sends something else"
    origin = exchange.origin
    if not origins.fits(origin, exchange.upload):
        return "sends what is no change of its message"
    if origins.absent(origin, exchange.upload):
        return "sends parts that are no change of a model"
    return ""


def pending_shapes(
    setting: Setting,
    mode: Mode,
    task: Task,
    shape: Shape,
) -> Pending:
    """What one client makes in a round, as shapes."""
    algorithm = setting.algorithm

    def make_pending(key: Any, data: Any) -> Pending:
        server, client, turn = first_turn(algorithm, task, shape.num_clients, key, data)
        message = algorithm.message(turn, server, client)
        new_client, upload, metrics = algorithm.train(turn, message, client, data)
        origin = algorithm.origin(message, client, upload)
        return Pending(
            client=new_client,
            upload=upload,
            origin=origin if mode.keeps_origin else (),
            metrics=metrics,
        )

    key: Any = jax.eval_shape(jax.random.key, 0)
    return jax.eval_shape(make_pending, key, shapes_of_client(shape.input_shape))
