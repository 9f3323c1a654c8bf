"""Values of one's own that no federation can be made of: one line that says why."""

import numpy as np
import pytest

from pfljax.data import (
    Partition,
    by_client,
    federate,
    from_arrays,
    from_indices,
)
from pfljax.data.values import MOST_CLASSES

NAN, INF = float("nan"), float("inf")
X, Y = np.ones((4, 2), np.float32), np.array([0, 1, 2, 0])
HIDDEN = [[1, 0], [0, 0], [0, 0], [0, 0]]


def one_line(error):
    """The message, one line of bearable length."""
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


ARRAYS = {
    "f64big": ({"x": X.astype(float) * 1e300}, r"x holds 1e\+300, but is stored"),
    "i64big": ({"x": X.astype(int) * 2**40}, "x holds 1099511627776, .* as int32"),
    "u64big": ({"x": X.astype(np.uint64) * 2**63}, "x holds 9223372036854775808, but"),
    "ybig": ({"y": Y + 2**33}, "4 labels are from 8589934592 to 8589934594;"),
    "xmasked": ({"x": np.ma.masked_array(X, HIDDEN)}, "x is a masked array, .* lost"),
    "xragged": ({"x": [[1, 2], [3]]}, "x is no array .*; expected examples of one sha"),
    "ncf": ({"num_classes": 3.7}, "num_classes is 3.7; expected a whole number"),
    "nczero": ({"num_classes": 0}, "num_classes is 0; expected at least 1"),
    "ncmany": ({"num_classes": MOST_CLASSES + 1}, "expected at most 1048576 classes"),
    "scalestr": ({"scale": "x"}, "scale is 'x'; expected a number, or one a channel"),
    "scalesubnormal": ({"scale": 1e-40}, "scale is 1e-40; x is .* at least 1.2e-38"),
    "scaleshape": ({"scale": [1.0] * 3}, r"scale has shape \[3\], .* x has \[2\]"),
    "shiftbig": ({"shift": 1e300}, "shift is 1e.300; expected finite float32 numbers"),
    "names": ({"class_names": "abc"}, "class_names is 'abc'; expected a list of 3"),
    "name": ({"name": 3}, "name is 3; expected a text"),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name):
    changes, message = ARRAYS[name]
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=message) as error:
        from_arrays(**{"x": X, "y": Y} | changes)
    one_line(error)


def test_numbers_at_the_limits_stay_as_they_are():
    most = np.finfo(np.float32).max
    assert from_arrays(np.float64([[most], [-most]]), [0, 1]).x.tolist() == [
        [most],
        [-most],
    ]
    whole = np.array([[2**31 - 1], [-(2**31)]])
    np.testing.assert_array_equal(from_arrays(whole, [0, 1]).x, whole)
    one_a_channel = np.ones((2, 3, 3, 2), np.uint8)
    found = from_arrays(one_a_channel, [0, 1], shift=[1.0, 2], scale=np.ones((1, 1, 2)))
    assert found.shift == [1.0, 2]


DIGITS = from_arrays(np.ones((40, 2), np.float32), np.arange(40) % 4)
INTS = np.arange(4)
FEDERATE = {
    "nf": ("iid", {"num_clients": 2.5}, "num_clients is 2.5; expected a whole number"),
    "nneg": ("iid", {"num_clients": -1}, "num_clients is -1; expected at least 1"),
    "seedneg": ("iid", {"seed": -1}, "seed is -1; expected at least 0"),
    "teststr": ("iid", {"test": "0.2"}, "test is '0.2'; expected a number"),
    "noisenone": ("iid", {"noise": None}, "noise is None; expected a text"),
    "hownone": (None, {}, "partition_name is None, .*; expected a name, or"),
    "paramslist": ("iid", {"params": [1]}, r"params is \[1\], .*; expected options"),
    "partneg": (
        Partition(INTS, np.array([5, -1])),
        {"num_clients": 2},
        r"a Partition of 4 examples has sizes array\(\[ 5, -1\]\); expected",
    ),
    "partfloat": (
        Partition(INTS[:2] * 1.0, np.array([1, 1])),
        {"num_clients": 2},
        r"a Partition's order are float64\[2\]; expected integers",
    ),
    "s1000": (
        "quantity_lognormal", {"params": {"sigma": 1000.0}, "num_clients": 20},
        "shares of the examples from .* inf are beyond a float64; choose a smaller si",
    ),
    "alphahuge": (
        "dirichlet", {"params": {"alpha": 1e308}}, "to 1e200",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FEDERATE)
def test_federate(name):
    how, options, message = FEDERATE[name]
    with pytest.raises(ValueError, match=message) as error:
        federate(DIGITS, how, **{"num_clients": 4, "seed": 0} | options)
    one_line(error)


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        (np.ones((4, 3), int), {}, "'shards' divides labels, and .* tokens have none"),
        (np.arange(4) / 3, {"noise": "pair:rate=0.1"}, "but the task is 'regression'"),
    ],
)
def test_what_needs_classes_is_refused(y, options, message):
    task = "tokens" if y.ndim > 1 else "regression"
    how = "shards" if task == "tokens" else "iid"
    with pytest.raises(ValueError, match=message):
        federate(from_arrays(X, y, task=task), how, num_clients=2, seed=0, **options)


@pytest.mark.parametrize("arrays", [None, (X, Y)])
def test_federate_wants_arrays(arrays):
    with pytest.raises(ValueError, match=r"arrays is .*; expected what load"):
        federate(arrays, "iid", num_clients=2, seed=0)


def test_a_data_set_of_test_examples_alone():
    arrays = from_arrays(X, Y, official=[1] * 4)
    with pytest.raises(
        ValueError, match="no official train examples; choose examples='all'"
    ):
        federate(arrays, "iid", num_clients=2, seed=0)
    assert (
        federate(arrays, "iid", num_clients=2, seed=0, examples="all").num_clients == 2
    )


def test_numpys_whole_numbers_are_numbers_of_clients():
    found = federate(DIGITS, "iid", num_clients=np.int64(3), seed=np.uint8(1))
    same = federate(DIGITS, "iid", num_clients=3, seed=1)
    assert found.num_clients == 3
    np.testing.assert_array_equal(found.index, same.index)


def test_more_counts_of_labels_than_memory_holds():
    arrays = from_arrays(
        np.zeros((300, 1), np.uint8), np.zeros(300, int), num_classes=2**20
    )
    with pytest.raises(ValueError, match=r"300 clients times 1048576 labels are more"):
        federate(arrays, "iid", num_clients=300, seed=0)


INDICES = {
    "float": ([[1.7, 2.0]], r"indices of client 0 are float64\[2\]; expected integers"),
    "ragged": ([[[0, 1], [2]]], "indices of client 0 is no array"),
    "none": (None, "indices are None; expected one list for each client"),
}


@pytest.mark.parametrize("name", INDICES)
def test_indices_of_clients(name):
    indices, message = INDICES[name]
    with pytest.raises(ValueError, match=message) as error:
        from_indices(indices)
    one_line(error)


IDS = {
    "huge": (
        [0, 10**12],
        "largest client id is 1000000000000, but there are 2 examples",
    ),
    "float": ([0.5, 1.0], r"client ids are float64\[2\]; expected integers"),
    "negative": ([-1, 0], r"client ids are int64\[2\]; expected integers >= 0"),
    "empty": ([], r"client ids are int64\[0\]; expected integers >= 0 \[N\], N >= 1"),
}


@pytest.mark.parametrize("name", IDS)
def test_ids_of_clients(name):
    ids, message = IDS[name]
    with pytest.raises(ValueError, match=message) as error:
        by_client(ids)
    one_line(error)
