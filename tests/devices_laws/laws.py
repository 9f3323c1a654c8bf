"""Laws of every selection, channel and clock, with any method.

Functions of a played combination that raise an AssertionError.
"""

import math
from typing import Any

import jax
import numpy as np

from devices_laws.items import DEADLINE, MODES
from devices_laws.play import Played, federation
from pfljax.channel import origins
from pfljax.conformance import toy
from pfljax.core import components, tree
from pfljax.core.communication import Exchange, trace_exchanges

SEED = 32  # bits
FLOAT = 32
ROUNDED = ("qsgd", "terngrad")  # at random, to few levels
# What a leaf of d numbers weighs behind a compressor, by its options.
BITS = {
    "uniform": lambda shape: _count(shape) * math.log2(16) + 2 * FLOAT,
    "qsgd": lambda shape: _count(shape) * math.log2(17) + FLOAT,
    "terngrad": lambda shape: _count(shape) * math.log2(3) + FLOAT,
    "sign": lambda shape: _count(shape) + FLOAT,
    "top_k": lambda shape: _kept(shape) * (FLOAT + math.log2(_count(shape))),
    "random_k": lambda shape: _kept(shape) * FLOAT + SEED,
    # Of rank 1: a column and a row. Vectors go as they are.
    "low_rank": lambda shape: sum(shape) * FLOAT if len(shape) == 2 else math.inf,
}


def cuts_are_free(played: Played) -> None:
    """Several rounds in one call equal single rounds, bit for bit, with one program."""
    state, metrics = played.whole
    toy.assert_same(state, played.states[-1])
    for name, values in metrics.items():
        one_by_one = np.concatenate([each[name] for each in played.metrics])
        np.testing.assert_array_equal(values, one_by_one, name)
    assert played.compiled == 1


def width_and_empty_places_are_free(played: Played) -> None:
    """Width and empty places change only the last digits, or a random rounding."""
    state, _ = played.whole
    wide = played.wide
    toy.assert_same(wide.participations, state.participations)
    tolerance = 1e-4
    # A last digit may tip what is rounded at random, which is a step of the channel.
    if any(components.parse(item.text).name in ROUNDED for item in played.items):
        tolerance = 0.02
    for part in ("server", "clients", "channel", "selection"):
        toy.assert_close(getattr(wide, part), getattr(state, part), tolerance)


def outsiders_rest(played: Played) -> None:
    """Clients that did not report keep every bit; only selected clients are counted."""
    clients = federation().num_clients
    for before, after in zip(played.states, played.states[1:], strict=False):
        took_part = np.asarray(after.participations - before.participations)
        outside = np.flatnonzero(took_part == 0)
        for old, new in zip(
            toy.arrays(before.clients), toy.arrays(after.clients), strict=True
        ):
            np.testing.assert_array_equal(old[outside], new[outside])
        cohort = np.asarray(after.cohort)
        assert ((cohort >= 0) & (cohort <= clients)).all()
        if _mode(played) != "fedasync":  # of several versions a round
            assert set(np.flatnonzero(took_part)) <= set(cohort.tolist())


def reports_are_counted(played: Played) -> None:
    """Participants are counted, and a client takes part at most once in a round."""
    select = played.sim.setting.selection
    through = played.sim.setting.channel
    for before, after, metrics in zip(
        played.states, played.states[1:], played.metrics, strict=False
    ):
        took_part = np.asarray(after.participations - before.participations)
        (reported,) = np.asarray(metrics["reported"])
        if through is not None and through.arrives is not None:
            assert took_part.sum() <= reported  # the others' uploads were lost
            continue
        if select.replacement:  # who is drawn twice counts twice
            assert (took_part > 0).sum() == reported
            continue
        assert took_part.sum() == reported
        if _mode(played):
            continue
        (asked,) = np.asarray(metrics["asked"])
        assert took_part.max() <= 1
        assert reported <= asked <= select.cohort


def all_stays_finite(played: Played) -> None:
    """States and losses stay finite and keep their shapes and dtypes."""
    forms = [jax.eval_shape(lambda state=state: state) for state in played.states]
    assert all(form == forms[0] for form in forms)
    for state in (*played.states, played.wide):
        for leaf in toy.arrays((state.server, state.clients, state.channel)):
            assert np.isfinite(np.asarray(leaf, float)).all()
        for leaf in toy.arrays(state.selection):  # of who is unknown, maybe infinite
            assert not np.isnan(np.asarray(leaf, float)).any()
    for metrics in played.metrics:
        (loss,) = np.asarray(metrics["loss"])
        (reported,) = np.asarray(metrics["reported"])
        assert np.isfinite(loss) or reported == 0


def bytes_are_the_payload(played: Played) -> None:
    """The clock counts the bytes of messages, and of uploads after the channel."""
    setting = played.sim.setting
    shape = federation().train.examples.x.shape[1:]
    clients = federation().num_clients
    sent = trace_exchanges(setting.algorithm, toy.classifier(), clients, shape)
    # A selection may have the name of a channel, such as uniform.
    channels = [item for item in played.items if item.kind == "channel"]
    names = [components.parse(item.text).name for item in channels]
    down = sum(tree.nbytes(exchange.message) for exchange in sent)
    up = sum(_payload(names, exchange) for exchange in sent)
    np.testing.assert_array_equal(setting.clock.down, down)
    np.testing.assert_array_equal(setting.clock.up, up)


def _payload(names: list[str], exchange: Exchange) -> int:
    """The bytes of an upload behind these channels."""
    bits = sum(name == "adaptive_clip" for name in names)  # whether it was short
    compressors = [BITS[name] for name in names if name in BITS]
    for leaf, start in _leaves(exchange):
        whole = 8 * _count(leaf.shape) * leaf.dtype.itemsize
        lengths = [whole]
        if origins.is_change(leaf, start):
            lengths += [compressed(leaf.shape) for compressed in compressors]
        bits += min(lengths)
    return math.ceil(bits / 8)


def _leaves(exchange: Exchange) -> list[tuple[Any, Any]]:
    """Each leaf of an upload beside its origin, None where there is none."""
    pairs: list[tuple[Any, Any]] = []
    # An upload may have holes, where its origin has them as well: they are no leaves.
    jax.tree.map(
        lambda leaf, start: pairs.append((leaf, start)),
        exchange.upload,
        exchange.origin,
    )
    return pairs


def _count(shape: tuple[int, ...]) -> int:
    return max(1, math.prod(shape))


def _kept(shape: tuple[int, ...]) -> int:
    """Three of ten coordinates, at least one."""
    return max(1, round(0.3 * _count(shape)))


def the_clock_goes_on(played: Played) -> None:
    """A round takes as long as its slowest client, and at most until the deadline."""
    seconds = np.concatenate([each["seconds"] for each in played.metrics])
    assert (seconds >= 0).all()
    assert seconds.sum() > 0
    if _mode(played):
        _arrivals_are_in_order(played, np.cumsum(seconds))
        return
    for each in played.metrics:
        waited = np.asarray(each["turn_seconds"])
        reported = np.asarray(each["turn_reported"]) > 0
        np.testing.assert_array_equal(each["seconds"], waited.max(1))
        assert (waited[reported] > 0).all()
        deadline = played.sim.setting.clock.deadline
        assert deadline is None or deadline == DEADLINE
        assert (waited <= (deadline or np.inf)).all()


def _arrivals_are_in_order(played: Played, clock: np.ndarray) -> None:
    """Of asynchronous rounds: staleness, order, who is under way, and how many."""
    turns = [
        np.stack([np.ravel(each[f"turn_{name}"]) for each in played.metrics])
        for name in ("client", "start", "seconds")
    ]
    client, start, lasts = turns
    end = start + lasts
    at_a_time = played.sim.setting.selection.cohort
    stale = np.concatenate([each["staleness"] for each in played.metrics])
    assert (stale >= 0).all()
    assert (start >= 0).all()
    assert (lasts > 0).all()
    assert (np.diff(end.ravel()) >= 0).all()
    np.testing.assert_allclose(end[:, -1], clock)
    for begun in start.ravel():
        under_way = (start <= begun) & (begun < end)
        assert under_way.sum() <= at_a_time
        _, times = np.unique(client[under_way], return_counts=True)
        assert (times == 1).all()


def _mode(played: Played) -> str:
    """The name of the asynchronous mode; "" of synchronous rounds."""
    texts = [item.text for item in played.items if item.text in MODES]
    return components.parse(texts[0]).name if texts else ""


LAWS = (
    cuts_are_free,
    width_and_empty_places_are_free,
    outsiders_rest,
    reports_are_counted,
    all_stays_finite,
    bytes_are_the_payload,
    the_clock_goes_on,
)
