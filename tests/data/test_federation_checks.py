"""Federations by hand, parts of them, and what is refused at the edge of a run."""

from dataclasses import replace

import numpy as np
import pytest

from pfljax.core.types import ClientData, Examples
from pfljax.data import check_federation, federate, from_arrays

NAN = float("nan")
X, Y = np.ones((4, 2), np.float32), np.array([0, 1, 2, 0])
ARRAYS = from_arrays(np.ones((40, 2), np.float32), np.arange(40) % 4)


def one_line(error):
    """The message, one line of bearable length."""
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


HOLD_OUT = {
    "nan": (NAN, 0, "fraction is nan; expected a fraction above 0 and below 1"),
    "str": ("x", 0, "unknown client 'x'; known: 0, 1"),
    "seed": (0.5, -1, "seed is -1; expected at least 0"),
    "seed-text": (0.5, "x", "seed is 'x'; expected a whole number"),
}


@pytest.mark.parametrize("name", HOLD_OUT)
def test_hold_out(name):
    fraction, seed, message = HOLD_OUT[name]
    with pytest.raises(ValueError, match=message) as error:
        make().hold_out(fraction, seed)
    one_line(error)


def test_a_mask_takes_no_clients():
    with pytest.raises(
        ValueError, match=r"client ids are bool\[4\]; expected"
    ) as error:
        make().take(np.ones(4, bool))
    one_line(error)


def make():
    """Four clients of nine examples, and four of the server."""
    return federate(ARRAYS, "iid", num_clients=4, seed=0, public=0.1)


def part(name, **changes):
    """The federation with changes of one part, by field."""
    found = make()
    return replace(found, **{name: getattr(found, name)._replace(**changes)})


def pool(**changes):
    """The federation over a pool with these changes."""
    found = make()
    examples = found.train.examples._replace(**changes)
    parts = {name: p._replace(examples=examples) for name, p in found.parts.items()}
    return replace(found, **parts)


I = np.int32  # noqa: E741
GOOD = make()
BY_HAND = {
    "type": (lambda: (X, Y), "federation is .*; expected a Federation: data.federate"),
    "out": (
        lambda: part("train", offset=I([0, 9, 18, 500])),
        r"train of client 3 has offset 500 .* 36 examples \(1 such clients\)",
    ),
    "wraps": (
        lambda: part("test", offset=I([2**31 - 1] * 4), size=I([2**31 - 1] * 4)),
        r"test of client 0 .* \(4 such clients\)",
    ),
    "zero": (
        lambda: part("train", size=I([3, 0, 3, 0])),
        "2 of 4 clients have no training examples, first client 1; leave them out",
    ),
    "len": (
        lambda: part("test", offset=I([0, 0]), size=I([1, 1])),
        r"test.offset is int32\[2\]; expected integers \[4\]",
    ),
    "uneven": (lambda: part("test", size=I([1])), r"test.size is int32\[1\]; expec"),
    "float": (lambda: part("train", size=np.ones(4)), r"train.size is float64\[4\]"),
    "part": (lambda: replace(make(), test=None), "test is None; expected ClientData"),
    "pools": (
        lambda: part("test", examples=Examples(GOOD.train.examples.x + 1, Y)),
        "test has a pool of its own; expected that of train",
    ),
    "k": (
        lambda: replace(make(), num_classes=2, class_names=("a", "b")),
        "the pool is no data set: the largest label is 3, but the number of class",
    ),
    "names": (lambda: replace(make(), class_names=("a",)), "expected a list of 4"),
    "xnan": (
        lambda: pool(x=np.full((36, 2), NAN, np.float32)),
        "the pool is no data set: x holds NaN or infinity",
    ),
    "xf64": (
        lambda: pool(x=np.zeros((36, 2))), "x of the pool is float64; expected float32"
    ),
    "scale": (lambda: replace(make(), scale=0), "scale is 0; x is divided by it"),
    "index": (lambda: replace(make(), index=np.arange(3)), "index has shape .3.; .*36"),
    "public": (lambda: replace(make(), public=X), "public is array.*; expected"),
    "publicspan": (
        lambda: part("public", size=I(99)), "public of client 0 has offset 0 and size",
    ),
    "publicshape": (
        lambda: replace(
            make(), public=ClientData(Examples(X[:, :1], Y.astype(I)), I(0), I(4))
        ),
        r"examples of public have shape \[1\], those of the pool \[2\]",
    ),
    "manifest": (
        lambda: replace(make(), manifest={}),
        "manifest lacks dataset, kind, num_classes",
    ),
    "manifestlist": (lambda: replace(make(), manifest=[]), r"manifest is \[\]; exp"),
    "clients": (
        lambda: replace(make(), manifest=GOOD.manifest | {"clients": [0]}),
        r"manifest describes clients \[0\]; expected the numbers of 4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_a_federation_by_hand(name):
    build, message = BY_HAND[name]
    with pytest.raises(ValueError, match=message) as error:
        check_federation(build())
    one_line(error)


def test_what_is_made_of_federations_stays_one():
    kept, unseen = make().hold_out(0.5, 0)
    equal_pools = pool()
    for federation in (make(), kept, unseen, make().take([1, 0]), equal_pools):
        check_federation(federation)
