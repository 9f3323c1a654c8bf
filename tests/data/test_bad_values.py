"""Values of one's own that no federation can be made of: one line that says why."""

import numpy as np
import pytest

from pfljax.data import (
    Partition,
    by_client,
    federate,
    from_arrays,
    from_rows,
)
from pfljax.data.edge import MOST_CLASSES

NAN, INF = float("nan"), float("inf")
X, Y = np.ones((4, 2), np.float32), np.array([0, 1, 2, 0])
HIDDEN = [[1, 0], [0, 0], [0, 0], [0, 0]]


def told(error):
    """The message, one line of bearable length."""
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


ARRAYS = {
    "f64big": ({"x": X.astype(float) * 1e300}, r"x holds 1e\+300, but is kept"),
    "f64small": ({"x": X.astype(float) * -1e300}, r"x holds -1e\+300, but is kept"),
    "i64big": ({"x": X.astype(int) * 2**40}, "x holds 1099511627776, .* as int32"),
    "u32big": ({"x": X.astype(np.uint32) * (2**31 + 5)}, "x holds 2147483653, "),
    "u64big": ({"x": X.astype(np.uint64) * 2**63}, "x holds 9223372036854775808, but"),
    "ybig64": (
        {"y": Y + 2**33 + 1, "num_classes": 2**34}, "num_classes is 17179869184; expec",
    ),
    "ybig": ({"y": Y + 2**33}, "label is 8589934594, but there are 4 rows"),
    "xmasked": ({"x": np.ma.masked_array(X, HIDDEN)}, "x is a masked array, .* lost"),
    "ymasked": ({"y": np.ma.masked_array(Y, Y == 0)}, "y is a masked array"),
    "clientmasked": ({"client": np.ma.masked_array(Y)}, "client is a masked array"),
    "xragged": ({"x": [[1, 2], [3]]}, "x is no array .*; expected rows of one shape"),
    "ncf": ({"num_classes": 3.7}, "num_classes is 3.7; expected a whole number"),
    "nctrue": ({"y": Y * 0, "num_classes": True}, "is True; expected a whole number"),
    "ncstr": ({"num_classes": "3"}, "num_classes is '3'; expected a whole number"),
    "ncnan": ({"num_classes": NAN}, "num_classes is nan; expected a whole number"),
    "nczero": ({"num_classes": 0}, "num_classes is 0; expected at least 1"),
    "ncmany": ({"num_classes": MOST_CLASSES + 1}, "expected at most 1048576 classes"),
    "scalestr": ({"scale": "x"}, "scale is 'x'; expected a number, or one a channel"),
    "scalebool": ({"scale": True}, "scale is True; expected a number"),
    "scaletiny": ({"scale": 1e-320}, "scale is 1e-320; x is divided by it"),
    "scalesubnormal": ({"scale": 1e-40}, "scale is 1e-40; x is .* at least 1.2e-38"),
    "scaleshape": ({"scale": [1.0] * 3}, r"scale has shape \[3\], .* x have \[2\]"),
    "scalerows": ({"scale": np.ones((4, 2))}, r"scale has shape \[4, 2\]"),
    "shiftstr": ({"shift": "x"}, "shift is 'x'; expected a number, or one a channel"),
    "shiftnan": ({"shift": NAN}, "shift is nan; expected finite numbers"),
    "shiftbig": ({"shift": 1e300}, "shift is 1e.300; expected finite numbers"),
    "names": ({"class_names": "abc"}, "class_names is 'abc'; expected a list of 3"),
    "namesint": ({"class_names": [1, 2, 3]}, r"class_names is \[1, 2, 3\]; expected"),
    "name": ({"name": 3}, "name is 3; expected a text"),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name):
    changes, message = ARRAYS[name]
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=message) as error:
        from_arrays(**{"x": X, "y": Y} | changes)
    told(error)


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
    "ns": ("iid", {"num_clients": "3"}, "num_clients is '3'; expected a whole number"),
    "ntrue": ("iid", {"num_clients": True}, "num_clients is True; expected a whole"),
    "nnan": ("iid", {"num_clients": NAN}, "num_clients is nan; expected a whole"),
    "nneg": ("iid", {"num_clients": -1}, "num_clients is -1; expected at least 1"),
    "seedneg": ("iid", {"seed": -1}, "seed is -1; expected at least 0"),
    "seedf": ("iid", {"seed": 1.5}, "seed is 1.5; expected a whole number"),
    "seeds": ("iid", {"seed": "x"}, "seed is 'x'; expected a whole number"),
    "seednone": ("iid", {"seed": None}, "seed is None; expected a whole number"),
    "teststr": ("iid", {"test": "0.2"}, "test is '0.2'; expected a number"),
    "testnone": ("iid", {"test": None}, "test is None; expected a number"),
    "noisenone": ("iid", {"noise": None}, "noise is None; expected a text"),
    "strat": ("iid", {"stratified": "x"}, "stratified is 'x'; expected True or False"),
    "public": ("iid", {"public": "x"}, "public is 'x'; expected a number"),
    "hownone": (None, {}, "partition_name is None; expected a name, or a Partition"),
    "howlist": ([[0, 1], [2]], {}, r"partition_name is \[\[0, 1\], \[2\]\]; expected"),
    "paramslist": ("iid", {"params": [1]}, r"params is \[1\]; expected options by"),
    "partneg": (
        Partition(INTS, np.array([0, 5]), np.array([5, -1])),
        {"num_clients": 2},
        "a Partition has a client of -1 rows",
    ),
    "partlist": (
        Partition([0, 1], [0, 1], [1, 1]),
        {"num_clients": 2},
        r"a Partition's order is \[0, 1\]; expected an array .* from_rows makes",
    ),
    "partfloat": (
        Partition(INTS[:2] * 1.0, np.array([0, 1]), np.array([1, 1])),
        {"num_clients": 2},
        r"a Partition's orders are float64\[2\]; expected integers",
    ),
    "partuneven": (
        Partition(INTS[:2], np.array([0]), np.array([1, 1])),
        {"num_clients": 2},
        "1 offsets and 2 sizes",
    ),
    "s1000": (
        "quantity_lognormal", {"params": {"sigma": 1000.0}, "num_clients": 20},
        "shares of the rows from .* inf are beyond a float64; choose a smaller sigma",
    ),
    "alphahuge": (
        "dirichlet_over_clients", {"params": {"alpha": 1e308}}, "to 1e200$",
    ),
    "alphatiny": (
        "dirichlet_over_classes_by_client", {"params": {"alpha": 5e-324}}, "1e-300 to",
    ),
    "s1e308": ("quantity_lognormal", {"params": {"sigma": 1e308}}, "3.4e38"),
}  # fmt: skip


@pytest.mark.parametrize("name", FEDERATE)
def test_federate(name):
    how, options, message = FEDERATE[name]
    with pytest.raises(ValueError, match=message) as error:
        federate(DIGITS, how, **{"num_clients": 4, "seed": 0} | options)
    told(error)


@pytest.mark.parametrize("arrays", [None, (X, Y)])
def test_federate_wants_arrays(arrays):
    with pytest.raises(ValueError, match=r"arrays is .*; expected what load"):
        federate(arrays, "iid", num_clients=2, seed=0)


def test_a_data_set_of_test_rows_alone():
    arrays = from_arrays(X, Y, official=[1] * 4)
    with pytest.raises(ValueError, match="no official train rows; choose rows='all'"):
        federate(arrays, "iid", num_clients=2, seed=0)
    assert federate(arrays, "iid", num_clients=2, seed=0, rows="all").num_clients == 2


def test_numpys_whole_numbers_are_numbers_of_clients():
    found = federate(DIGITS, "iid", num_clients=np.int64(3), seed=np.uint8(1))
    same = federate(DIGITS, "iid", num_clients=3, seed=1)
    assert found.num_clients == 3
    np.testing.assert_array_equal(found.row, same.row)


def test_more_counts_of_labels_than_memory_holds():
    arrays = from_arrays(
        np.zeros((300, 1), np.uint8), np.zeros(300, int), num_classes=2**20
    )
    with pytest.raises(ValueError, match=r"300 clients times 1048576 classes are"):
        federate(arrays, "iid", num_clients=300, seed=0)


ROWS = {
    "float": ([[1.7, 2.0]], r"rows of client 0 are float64\[2\]; expected integers"),
    "str": ([[1], ["a"]], r"rows of client 1 are <U1\[1\]; expected integers"),
    "bool": ([[True, False]], r"rows of client 0 are bool\[2\]"),
    "2d": ([[[0, 1]]], r"rows of client 0 are int64\[1, 2\]"),
    "ragged": ([[[0, 1], [2]]], "rows of client 0 is no array"),
    "none": (None, "rows of clients are None; expected one list of rows for each"),
    "empty": ([], r"rows of clients are \[\]; expected one list"),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_clients(name):
    rows, message = ROWS[name]
    with pytest.raises(ValueError, match=message) as error:
        from_rows(rows)
    told(error)


IDS = {
    "huge": ([0, 10**12], "largest client id is 1000000000000, but there are 2 rows"),
    "float": ([0.5, 1.0], r"client ids are float64\[2\]; expected integers"),
    "negative": ([-1, 0], r"client ids are int64\[2\]; expected integers >= 0"),
    "empty": ([], r"client ids are int64\[0\]; expected integers >= 0 \[N\], N >= 1"),
}


@pytest.mark.parametrize("name", IDS)
def test_ids_of_clients(name):
    ids, message = IDS[name]
    with pytest.raises(ValueError, match=message) as error:
        by_client(ids)
    told(error)
