import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import selection
from pfljax.core.keys import derive
from selecting import CLIENTS, COUNTS, GREATEST, LABELS, SIZES, draws, made, play

TRACE = np.random.default_rng(3).uniform(size=(5, CLIENTS)) < 0.5
BETA = 0.6


def saved(folder, array, name="available"):
    file = folder / "trace.npz"
    np.savez(file, **{name: array})
    return str(file)


def chances(pattern):
    """The probability of each client, of the formulas of easyFL."""
    times = np.random.default_rng(0).lognormal(0, -np.log(1 - BETA), CLIENTS)
    return {
        "homogeneous": np.full(CLIENTS, 1 - BETA),
        "lognormal": times / times.max(),
        "more_examples": (SIZES / SIZES.max()) ** BETA,
        "fewer_examples": SIZES**-BETA / (SIZES**-BETA).max(),
        "labels": BETA * LABELS + 1 - BETA,
        "label_count": BETA * COUNTS + 1 - BETA,
    }[pattern]


def shares_there(select, state, count=3000):
    """How often each client is there: all that are there have a place."""
    found = draws(select, state, count)
    return (found[:, :, None] == np.arange(CLIENTS)).any(1).mean(0)


@pytest.mark.parametrize(
    "pattern",
    [
        "homogeneous",
        "lognormal",
        "more_examples",
        "fewer_examples",
        "labels",
        "label_count",
    ],
)
def test_clients_are_there_as_often_as_the_pattern_says(pattern):
    select = made("availability", CLIENTS, pattern=pattern, beta=BETA)
    assert not selection.learns(select)
    found = shares_there(select, ())
    np.testing.assert_allclose(found, chances(pattern), atol=0.04)


@pytest.mark.parametrize(
    "pattern",
    [
        "homogeneous",
        "lognormal",
        "labels",
        "label_count",
        "label_cycle",
        "more_examples",
    ],
)
def test_who_is_always_there_is_drawn_uniformly(pattern):
    key = jax.random.key(2)
    select = made("availability", pattern=pattern, beta=0.0)
    ids = select.choose(select.init(), key)
    plain = selection.uniform(3, CLIENTS)
    np.testing.assert_array_equal(ids, plain.choose((), derive(key, "members")))


def test_a_day_has_hours():
    select = made("availability", CLIENTS, pattern="diurnal", beta=BETA, period=4)
    for hour, factor in ((0, 0.5), (1, 0.9), (3, 0.1), (4, 0.5), (4_000_001, 0.9)):
        found = shares_there(select, jnp.int32(hour), 2000)
        np.testing.assert_allclose(found, factor * chances("lognormal"), atol=0.05)


@pytest.mark.slow
def test_labels_have_their_turn_in_a_cycle():
    """easyFL: r = (1 + round mod T) / T, in the range of a client's labels."""
    options = {"pattern": "label_cycle", "beta": BETA, "period": 7}
    select = made("availability", CLIENTS, **options)
    for round_ in (0, 1, 6, 7, 7_000_002):
        r = (1 + round_ % 7) / 7
        active = (r >= LABELS - 1e-9) & (r <= GREATEST + 1e-9)
        assert 0 < active.sum() < CLIENTS
        wanted = BETA * active + 1 - BETA
        found = shares_there(select, jnp.int32(round_), 2000)
        np.testing.assert_allclose(found, wanted, atol=0.05)
        assert (found[active] == 1).all()
    assert [int(each.before) for each in play(select, 3)] == [0, 1, 2]


def test_a_trace_says_who_is_there(tmp_path):
    select = made("availability", pattern="trace", file=saved(tmp_path, TRACE))
    for index, round_ in enumerate(play(select, 12)):
        there = np.flatnonzero(TRACE[index % 5])
        members = round_.ids[round_.ids < CLIENTS]
        assert len(members) == min(3, len(there))
        assert len(set(members)) == len(members)
        assert set(members) <= set(there)


def test_those_that_are_there_are_drawn_uniformly(tmp_path):
    row = np.array([[1, 0, 1, 1, 0, 1, 0, 0]])
    file = saved(tmp_path, row)
    select = made("availability", 2, pattern="trace", file=file)
    found = draws(select, jnp.int32(0), 3000)
    counts = np.bincount(found.ravel(), minlength=CLIENTS)
    np.testing.assert_allclose(counts / 6000, row[0] / 4, atol=0.02)


def test_bad_traces_are_refused_in_a_line(tmp_path):
    def refused(expected, file, **options):
        with pytest.raises(ValueError, match=expected) as error:
            made("availability", file=file, **{"pattern": "trace"} | options)
        assert "\n" not in str(error.value)

    refused(r"has shape \[5, 7\]; expected an", saved(tmp_path, TRACE[:, :7]))
    refused("other values than 0 and 1", saved(tmp_path, 2.5 * TRACE))
    refused("at most 1 clients of .* at once", saved(tmp_path, np.eye(CLIENTS)))
    refused(r"cannot be read \(KeyError\); expected", saved(tmp_path, TRACE, "x"))
    refused(r"nowhere.npz cannot be read \(FileNotFoundError\)", "nowhere.npz")
    refused("pattern is 'trace' and file is None", None)
    refused("file with pattern=trace, and with no", "x.npz", pattern="diurnal")
    refused("pattern is 'daily'; expected 'homogeneous' ", None, pattern="daily")
    refused("beta is 1.0; expected a number >= 0 and below 1", None, beta=1.0)
    refused("period is 0; expected at least 1", None, pattern="diurnal", period=0)
