"""Makes the virtual clock and the mode of a run from its settings."""

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
    shape_of_key,
    shapes_of_client,
    shapes_of_server,
    trace_exchanges,
)
from pfljax.core.training import budget
from pfljax.core.types import Algorithm, Task
from pfljax.data import profiles
from pfljax.engine import Setting, clock, count_gradients, modes
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
    """The setting with the clock and the mode of the experiment, if there are any.

    Raises:
      ValueError: the profile does not fit the clients, or the mode the method.
    """
    profile = profiles.make(experiment.profile, shape.num_clients)
    mode = modes.make(experiment.mode, experiment.cohort)
    if profile is None:
        return setting
    if mode is not None:
        _check_mode(experiment, setting, task, shape)
    # A clock does not change the bytes.
    down, up = client_traffic(setting, task, shape)
    timed = Clock(profile, down.astype(float), up.astype(float), experiment.deadline)
    if mode is not None:
        like = pending_shapes(setting, mode, task, shape)
        mode = mode._replace(like=like)
    return setting._replace(clock=timed, mode=mode)


def devices_crc(experiment: Experiment) -> int | None:
    """The checksum of the files of a profile and of a trace; None without any.

    Settings only have the names of these files.
    """
    names = [experiment.selection.options.get("file")]
    if experiment.profile.name == "file":
        names.insert(0, experiment.profile.options.get("path"))
    paths = [Path(str(name)) for name in names if name]
    read = [path.read_bytes() for path in paths if path.is_file()]
    return zlib.crc32(b"".join(read)) if read else None


def seconds_of_round(setting: Setting, sizes: Any) -> np.ndarray:
    """Expected seconds of each client's round, f64[C], for `sizes` i[C] of its data."""
    assert setting.clock is not None
    # In a sweep, which traces a run, sizes and devices are known as well.
    with jax.ensure_compile_time_eval():
        sizes = jnp.asarray(sizes)
        steps = budget(setting.local, sizes)
        work = np.asarray(count_gradients(setting, steps, sizes, jnp.bool_(False)))
    return np.asarray(clock.mean_seconds(setting.clock, work), np.float64)


def check_deadline(setting: Setting, sizes: Any) -> None:
    """Refuses a deadline that no client can meet, for `sizes` i[C] of their data."""
    timed = setting.clock
    if timed is None or timed.deadline is None:
        return
    sizes = jnp.asarray(sizes)
    least = budget(setting.local, sizes)
    if setting.selection.work is not full_work:
        # Stragglers may do a single step.
        least = jnp.minimum(least, 1)
    # In its first round, since a client that never reports stays there.
    work = np.asarray(count_gradients(setting, least, sizes, jnp.bool_(True)))
    fastest = clock.fastest(timed, work)
    if fastest > timed.deadline:
        raise ValueError(
            f"deadline is {timed.deadline:g}, but the fastest client takes "
            f"{fastest:.3g} virtual seconds: no client would report; "
            "choose a longer deadline"
        )


def _check_mode(
    experiment: Experiment, setting: Setting, task: Task, shape: Shape
) -> None:
    """Refuses methods, selections and channels that need synchronous rounds."""
    mode = str(experiment.mode)
    chosen = experiment.selection.name
    drawn = setting.selection
    other_number = drawn.cohort != experiment.cohort
    if other_number or drawn.replacement or selection.learns(drawn):
        raise ValueError(
            f"mode {mode!r} draws clients before anything trains, and each client only "
            f"once at a time, but selection {chosen!r} draws with replacement, another "
            "number than the cohort, or by the results of rounds; choose 'uniform'"
        )
    through = setting.channel
    if through is not None and (
        through.arrives is not None or through.receive is not as_received
    ):
        names = ", ".join(map(str, (*experiment.channel, *experiment.aggregation)))
        raise ValueError(
            f"mode {mode!r} merges uploads as they arrive, but one of {names} needs "
            "all uploads of a round together, or loses some; leave it out, or choose "
            "channels that act at the client, such as clip, gaussian or qsgd"
        )
    reason = misfit(setting.algorithm, task, shape)
    if reason:
        raise ValueError(
            f"mode {mode!r} merges uploads that are shaped as the server and averaged, "
            f"but {experiment.algorithm.name} {reason}; choose a method whose server "
            "averages models, such as fedavg, fedprox or ditto"
        )


def misfit(algorithm: Algorithm, task: Task, shape: Shape) -> str:
    """The reason why uploads cannot be merged one by one; "" if they can be."""
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
    """The results of one client's round, as shapes."""
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

    client = shapes_of_client(task, shape.input_shape)
    return jax.eval_shape(make_pending, shape_of_key(), client)
