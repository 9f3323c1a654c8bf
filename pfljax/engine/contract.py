"""Checks of the values that a method returns, while its functions are traced."""

import inspect
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.types import Algorithm, Metrics
from pfljax.engine.setting import Setting
from pfljax.selection.reports import TURN_SECONDS

NUMBERS = (jax.Array, jax.ShapeDtypeStruct, np.ndarray, np.number, int, float)
# The metrics of a round that the engine adds to those of the method.
COUNTED = (
    *("asked", "reported", "seconds", "staleness"),
    *("turn_client", "turn_start", TURN_SECONDS, "turn_reported"),
)

LOOKS = (
    "the selection looks at the model of each client, so the method's uploads have to "
    "be models, such as those of fedavg, fedprox and ditto"
)

EVALUATES = (
    "for this selection clients evaluate the server's model, so the method has to have "
    "one, as fedavg, fedprox and ditto do"
)


def check_selection(setting: Setting) -> None:
    """Refuses a selection that needs models, for a method without them."""
    algorithm = setting.algorithm
    several = setting.groups is not None or algorithm.architecture is not None
    no_model = algorithm.server_model is None or several
    if setting.selection.evaluate is not None and no_model:
        raise ValueError(f"{EVALUATES}; this one's server has no single model of all")
    if setting.selection.observe is None:
        return
    if no_model or algorithm.then is not None:
        raise ValueError(f"{LOOKS}; this one's server has no single model of all")


def check_model(upload: Any, model: Any) -> None:
    """Refuses an upload that is no model, for a selection that looks at models."""
    change = first_change(model, upload)
    if change is not None:
        raise ValueError(f"{LOOKS}; of an upload here, {change}")


def check_metrics(metrics: Metrics) -> None:
    """Refuses training metrics without a loss, which every table needs."""
    if "loss" not in metrics:
        raise ValueError(
            f"the method's `train` returned the metrics {sorted(metrics)}; give the "
            'data loss as "loss"'
        )


def join_metrics(before: Metrics, added: Metrics) -> Metrics:
    """The metrics of all exchanges of a round; the loss is that of the last one."""
    repeated = sorted((before.keys() & added.keys()) - {"loss", *COUNTED})
    if repeated:
        raise ValueError(
            f"two exchanges of a round returned the metric {repeated[0]!r}, and the "
            "log has room for one; give each another name"
        )
    return before | added


def check_training(algorithm: Algorithm, returned: Any) -> tuple[Any, Any, Metrics]:
    """Returns `returned` if it is (client, upload, metrics).

    Each metric is a real number by a name that the engine does not use. One of several
    exchanges may have no loss.
    """
    name, where = _locate(algorithm, "train")
    if not isinstance(returned, tuple) or len(returned) != 3:
        came = f"a {type(returned).__name__}"
        if isinstance(returned, tuple):
            came = f"{len(returned)} values"
        raise ValueError(
            f"{name}: `train` returned {came}; expected (client, upload, metrics)"
            f"{where}"
        )
    *_, metrics = returned
    if not isinstance(metrics, Mapping):
        came = type(metrics).__name__
        raise ValueError(
            f"{name}: `train` returned metrics of type {came}; expected a dict{where}"
        )
    for key, value in metrics.items():
        fault = _find_fault(key, value)
        if fault is not None:
            raise ValueError(f"{name}: `train` returned {fault}{where}")
    return returned


def _find_fault(key: Any, value: Any) -> str | None:
    """The reason why no log can keep this metric; None if it can."""
    if not isinstance(key, str):
        return f"a metric with the name {key!r}; expected a text"
    if key in COUNTED:
        return f"the metric {key!r}, which pfljax counts itself; choose another name"
    if is_real(value):
        return None
    came = f"of shape {list(np.shape(value))}" if np.shape(value) else repr(value)
    return f"the metric {key!r} {came}; expected one real number, such as a mean"


def is_real(value: Any) -> bool:
    """Whether it is one real number, or stands for one while it is traced."""
    is_scalar = isinstance(value, NUMBERS) and np.shape(value) == ()
    return is_scalar and not jnp.iscomplexobj(value)


def check_state(
    algorithm: Algorithm,
    role: str,
    owner: str,
    before: Any,
    after: Any,
) -> None:
    """Refuses a new state whose form differs from the old one, while it is traced.

    The function `role` of the method, such as "train", made it of the state of its
    `owner`, "client" or "server". Later it would be an error of the loop over rounds,
    which names no method, or a dtype that the scatter would cast silently.
    """
    change = first_change(before, after)
    if change is None:
        return
    name, where = _locate(algorithm, role)
    raise ValueError(
        f"{name}: `{role}` returned another {owner} state than it began with: "
        f"{change}; keep the structure, shapes and dtypes of `init`{where}"
    )


def _locate(algorithm: Algorithm, role: str) -> tuple[str, str]:
    """The method in which a function was written, and what to mend, for a message."""
    # By the role, since the function may be a lambda or have any name. It was written
    # in `ditto` if it is `ditto.<locals>.train`.
    function = getattr(algorithm, role)
    unnamed = type(function).__name__
    written_in = getattr(function, "__qualname__", unnamed).partition(".")[0]
    code = getattr(inspect.unwrap(function), "__code__", None)
    where = f"; mend {code.co_filename}:{code.co_firstlineno}" if code else ""
    return written_in, where


def first_change(before: Any, after: Any) -> str | None:
    """The first leaf in which two states differ, as text; None if they agree."""
    old = _forms(before)
    new = _forms(after)
    for path in old | new:
        was = old.get(path, "missing")
        now = new.get(path, "missing")
        if was != now:
            return f"the leaf {path or 'itself'} is {now}, expected {was}"
    was = jax.tree.structure(before)
    now = jax.tree.structure(after)
    return None if was == now else f"it is {now}, expected {was}"


def _forms(state: Any) -> dict[str, str]:
    """The dtype and the shape of each leaf, such as "float32[3, 4]", by its path."""
    forms = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        # Python numbers may be states too, and have no shape.
        leaf = leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf)
        forms[jax.tree_util.keystr(path)] = f"{leaf.dtype}{list(leaf.shape)}"
    return forms
