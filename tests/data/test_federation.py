"""Federations: one pool in order, splits, test sets, the manifest, bad input."""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pfljax.data import load
from pfljax.data.arrays import from_arrays
from pfljax.data.federate import TEST_FROM, federate
from pfljax.data.partitions.base import Partition, from_indices
from pfljax.data.sources.transforms import thin
from pfljax.runs import partition

ROWS, CLASSES, TEST_ROWS = 400, 5, 100


@pytest.fixture(scope="module")
def arrays():
    """The pixel names the row, so that examples can be followed."""
    rng = np.random.default_rng(0)
    number = np.arange(ROWS)
    x = np.stack([number // 256, number % 256], axis=1).astype(np.uint8)
    official = (number >= ROWS - TEST_ROWS).astype(int)
    y = rng.integers(0, CLASSES, ROWS)
    return from_arrays(x, y, client=number % 7, official=official, name="toy")


def examples_of(part, k):
    """Row numbers of client k, read from the pixels."""
    first, size = int(part.offset[k]), int(part.size[k])
    x = np.asarray(part.examples.x[first : first + size]).astype(int)
    return x[:, 0] * 256 + x[:, 1]


def parts(found):
    return found.train, found.validation, found.test


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("name", ["iid", "dirichlet", "natural"])
def test_one_pool_ordered_by_client_and_part(arrays, name, stratified):
    clients = None if name == "natural" else 9
    found = federate(
        arrays, name, num_clients=clients, seed=1, stratified=stratified, examples="all"
    )
    train, validation, test = parts(found)
    assert train.examples is validation.examples is test.examples
    assert train.examples.x.dtype == np.uint8
    n = train.size + validation.size + test.size
    np.testing.assert_array_equal(train.offset, np.cumsum(n) - n)
    np.testing.assert_array_equal(validation.offset, train.offset + train.size)
    np.testing.assert_array_equal(test.offset, validation.offset + validation.size)
    np.testing.assert_array_equal(test.size, (0.2 * np.asarray(n, float)).astype(int))
    everything = [
        examples_of(p, k) for p in parts(found) for k in range(found.num_clients)
    ]
    np.testing.assert_array_equal(np.sort(np.concatenate(everything)), np.arange(ROWS))


def test_labels_stay_with_their_pixels(arrays):
    found = federate(arrays, "shards", num_clients=5, seed=0)
    pool = found.train.examples
    row = np.asarray(pool.x).astype(int) @ [256, 1]
    np.testing.assert_array_equal(np.asarray(pool.y), arrays.y[row])


def test_natural_clients_keep_their_examples(arrays):
    found = federate(arrays, "natural", num_clients=None, seed=0, examples="all")
    for part in parts(found):
        for k in range(7):
            assert set(examples_of(part, k) % 7) <= {k}


def test_stratified_parts_have_the_labels_of_the_client(arrays):
    found = federate(
        arrays, "iid", num_clients=3, seed=0, test=0.3, validation=0.2, stratified=True
    )
    for k in range(3):
        own = [
            np.bincount(arrays.y[examples_of(p, k)], minlength=5) for p in parts(found)
        ]
        total = np.sum(own, axis=0)
        assert np.abs(own[2] - 0.3 * total).max() <= 1.5
        assert np.abs(own[1] - 0.2 * total).max() <= 1.5


def test_paper_split_of_960_and_240():
    arrays = from_arrays(np.zeros((60_000, 1), np.uint8), np.arange(60_000) // 6000)
    found = federate(arrays, "shards", num_clients=50, seed=0, test=0.2, validation=0.0)
    assert set(np.asarray(found.train.size)) == {960}
    assert set(np.asarray(found.test.size)) == {240}


def test_official_test_examples_are_shared_not_copied(arrays):
    found = federate(arrays, "iid", num_clients=6, seed=0, test_from="official")
    assert len(found.test.examples.y) == ROWS
    for k in range(6):
        np.testing.assert_array_equal(
            examples_of(found.test, k), np.arange(ROWS - TEST_ROWS, ROWS)
        )
    assert np.asarray(found.manifest["official"])[:, 1].tolist() == [TEST_ROWS] * 6


def test_official_classes_are_those_that_the_client_holds(arrays):
    found = federate(
        arrays, "classes", num_clients=6, seed=0, test_from="official_classes"
    )
    official = np.arange(ROWS - TEST_ROWS, ROWS)
    for k in range(6):
        held = np.unique(arrays.y[np.r_[examples_of(found.train, k)]])
        wanted = official[np.isin(arrays.y[official], held)]
        np.testing.assert_array_equal(examples_of(found.test, k), wanted)


@pytest.fixture(scope="module")
def marked(arrays):
    """Every fifth example is an official validation example."""
    official = np.where(np.arange(ROWS) % 5 == 4, 2, arrays.official)
    return arrays._replace(official=official.astype(np.uint8))


@pytest.mark.parametrize("validation", [0.0, 0.1])
@pytest.mark.parametrize("test_from", TEST_FROM)
def test_natural_clients_keep_their_official_split(marked, test_from, validation):
    found = federate(
        marked, "natural", num_clients=None, seed=0, validation=validation,
        test_from=test_from, noise="pair:rate=0.9",
    )  # fmt: skip
    kept = parts(found)[: 3 if test_from == "clients" else 2]
    for k in range(7):
        for part, official in zip(kept, (0, 2, 1), strict=False):
            own = np.flatnonzero((marked.client == k) & (marked.official == official))
            assert sorted(examples_of(part, k)) == own.tolist()
    is_given = found.official != 0
    labels = found.validation.examples.y[is_given]
    np.testing.assert_array_equal(labels, marked.y[found.index[is_given]])


@pytest.mark.parametrize(
    ("test_from", "chosen"), [("official", True), ("official_classes", False)]
)
def test_other_clients_are_validated_as_they_are_tested(marked, test_from, chosen):
    found = federate(marked, "classes", num_clients=6, seed=0, test_from=test_from)
    official = np.flatnonzero(marked.official == 2)
    for k in range(6):
        held = np.isin(marked.y[official], marked.y[examples_of(found.train, k)])
        wanted = official[held | chosen]
        np.testing.assert_array_equal(examples_of(found.validation, k), wanted)


def test_clients_that_share_a_natural_client_split_their_own_examples(marked):
    one = marked._replace(client=np.zeros(ROWS, np.int32))
    for how in "iid", "natural":
        found = federate(one, how, num_clients=1 if how == "iid" else None, seed=0)
        assert found.manifest["test_from"] == "official_own"
    found = federate(one, "iid", num_clients=2, seed=0)
    assert found.manifest["test_from"] == "clients"


def test_names_of_clients_and_classes_are_in_the_manifest():
    x, y = np.zeros((12, 1)), np.arange(12) % 2
    arrays = from_arrays(x, y, client=["b", "a", "c"] * 4, class_names=["no", "yes"])
    found = federate(arrays, "natural", num_clients=None, seed=0)
    assert found.manifest["client_names"] == ["a", "b", "c"]
    assert found.manifest["class_names"] == ["no", "yes"]
    assert found.take([2, 0]).manifest["client_names"] == ["c", "a"]
    thinned = thin(arrays._replace(client=np.array([0, *[1] * 5, *[2] * 6])), 6)
    assert thinned.client_names == ("a", "c")  # the first and seventh example
    numbered = from_arrays(x, y, client=[0, 1, 2] * 4)
    found = federate(numbered, "natural", num_clients=None, seed=0)
    assert not {"client_names", "class_names"} & found.manifest.keys()
    assert "client_names" not in federate(arrays, "iid", num_clients=2, seed=0).manifest


def test_validation_examples_that_no_client_has_are_counted(marked):
    official, kept = (np.flatnonzero(marked.official == part) for part in (2, 0))
    found = federate(marked, "iid", num_clients=6, seed=0)
    assert found.manifest["unused"]["validation"] == len(official)
    given = federate(marked, "natural", num_clients=None, seed=0)
    assert "validation" not in given.manifest["unused"]
    # A Partition may give them to clients.
    two = federate(marked, from_indices([official[1:], kept]), num_clients=2, seed=0)
    assert two.manifest["unused"]["validation"] == 1


def test_clients_do_not_train_on_official_validation_examples(marked):
    lists = from_indices([[0, 1, 4], [2, 3]])
    with pytest.raises(ValueError, match="train on official validation examples"):
        federate(marked, lists, num_clients=2, seed=0, test_from="official")


def test_train_examples_leave_official_test_examples_out(arrays):
    found = federate(arrays, "iid", num_clients=4, seed=0)
    assert len(found.train.examples.y) == ROWS - TEST_ROWS
    assert np.asarray(found.manifest["official"])[:, 1].sum() == 0


def test_a_given_partition_is_used_as_it_is(arrays):
    given = from_indices([[5, 1, 9, 11, 30], [2, 3]])
    found = federate(arrays, given, num_clients=None, seed=0, test=0, validation=0)
    assert set(examples_of(found.train, 0)) == {5, 1, 9, 11, 30}
    assert set(examples_of(found.train, 1)) == {2, 3}
    assert found.manifest["partition"] == "given"


def test_manifest_counts_and_hash(arrays):
    kwargs = {"num_clients": 8, "seed": 3, "params": {"alpha": 0.3}}
    found = federate(arrays, "dirichlet", **kwargs)
    about = json.loads(json.dumps(found.manifest))
    assert about == found.manifest
    assert about["params"] == {"alpha": 0.3, "min_size": 1, "balance": False}
    for k in range(8):
        labels = np.concatenate([arrays.y[examples_of(p, k)] for p in parts(found)])
        counts = np.bincount(labels, minlength=CLASSES).tolist()
        assert about["class_histogram"][k] == counts
        assert about["sizes"]["test"][k] == int(found.test.size[k])
    again = federate(arrays, "dirichlet", **kwargs)
    assert again.manifest == found.manifest
    other = federate(arrays, "dirichlet", **{**kwargs, "seed": 4})
    assert other.manifest["sha256"] != found.manifest["sha256"]


def test_every_row_of_the_pool_is_known(arrays):
    found = federate(arrays, "iid", num_clients=4, seed=0, test_from="official")
    pool = np.asarray(found.train.examples.x).astype(int)
    np.testing.assert_array_equal(found.index, pool @ [256, 1])
    np.testing.assert_array_equal(found.official, found.index >= ROWS - TEST_ROWS)
    training, unseen = found.hold_out(0.25, 0)
    saved = partition.examples(training, unseen)
    assert (saved["index"].dtype, saved["official"].dtype) == (np.int32, np.uint8)
    for people, prefix in ((training, ""), (unseen, "unseen_")):
        for i, part in enumerate(parts(people)):
            for k in range(people.num_clients):
                at = saved[f"{prefix}offset"][i, k]
                index = saved["index"][at : at + saved[f"{prefix}size"][i, k]]
                np.testing.assert_array_equal(index, examples_of(part, k))


def test_examples_given_in_python_are_known_by_their_bytes(arrays):
    def manifest(x, given):
        found = federate(arrays._replace(x=x), "iid", num_clients=4, seed=0)
        return partition.manifest(found, None, given)

    saved = manifest(arrays.x, True)
    assert saved == manifest(arrays.x, True) == json.loads(json.dumps(saved))
    assert saved != manifest(255 - arrays.x, True)
    assert (saved["input_shape"], saved["shift"], saved["scale"]) == ([2], 0.0, 255.0)


def test_hash_is_the_same_on_every_machine():
    arrays = from_arrays(np.zeros((4, 1), np.uint8), [0, 1, 0, 1])
    given = from_indices([[0, 1], [2, 3]])
    found = federate(arrays, given, num_clients=2, seed=0, test=0, validation=0)
    order = np.random.default_rng([0, 1]).random(4)
    index = np.r_[np.argsort(order[:2]), 2 + np.argsort(order[2:])]
    words = [*arrays.y[index], *index, *[0, 2], *[2, 4], *[2, 4], 2, 2, 0, 0, 0, 0]
    expected = hashlib.sha256(np.array(words, "<i8").tobytes()).hexdigest()
    assert found.manifest["sha256"] == expected


def test_take_reorders_clients_over_the_same_pool(arrays):
    found = federate(arrays, "iid", num_clients=10, seed=0)
    some = found.take([7, 2, 7]).take([1, 0])
    assert some.num_clients == 2
    assert some.manifest["clients"] == [2, 7]
    assert some.train.examples is found.train.examples
    for new, old in ((0, 2), (1, 7)):
        kept, all_ = some.manifest["class_histogram"], found.manifest["class_histogram"]
        assert kept[new] == all_[old]
        for mine, theirs in zip(parts(some), parts(found), strict=True):
            np.testing.assert_array_equal(
                examples_of(mine, new), examples_of(theirs, old)
            )


def test_hold_out_divides_the_clients(arrays):
    found = federate(arrays, "iid", num_clients=10, seed=0)
    kept, unseen = found.hold_out(0.3, 5)
    assert (kept.num_clients, unseen.num_clients) == (7, 3)
    ids = kept.manifest["clients"] + unseen.manifest["clients"]
    assert sorted(ids) == list(range(10))
    again = found.hold_out(0.3, 5)[1].manifest["clients"]
    assert again == unseen.manifest["clients"]


@pytest.fixture(scope="module")
def grouped():
    """Clients a, b and c in two domains; a second grouping divides client a."""
    arrays = from_arrays(
        np.ones((30, 2)),
        np.arange(30) % 2,
        client=np.repeat(["a", "b", "c"], 10),
        groups={
            "domain": np.repeat(["photo", "art", "photo"], 10),
            "half": np.arange(30) // 5,
        },
    )
    return federate(thin(arrays, 2), "natural", num_clients=None, seed=0)


def test_clients_are_grouped_by_what_all_of_their_examples_share(grouped):
    assert grouped.manifest["groups"] == {"domain": ["photo", "art", "photo"]}
    assert grouped.take([1]).manifest["groups"] == {"domain": ["art"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("b", ["b"]), ("c, a", ["a", "c"]), ("domain=photo", ["a", "c"])],
)
def test_clients_are_held_out_by_name_and_group(grouped, text, expected):
    kept, unseen = grouped.hold_out(text)
    assert unseen.manifest["client_names"] == expected
    assert sorted(kept.manifest["client_names"] + expected) == ["a", "b", "c"]


def test_clients_without_names_are_held_out_by_their_numbers(arrays):
    found = federate(arrays, "iid", num_clients=10, seed=0)
    assert found.hold_out("7,3")[1].manifest["clients"] == [3, 7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("d", "unknown client 'd'; known: a, b, c"),
        ("half=0", "unknown group of clients 'half'; known: domain"),
        ("domain=foto", "unknown domain 'foto'; .* did you mean 'photo'"),
    ],
)
def test_clients_that_are_not_there_are_refused(grouped, text, message):
    with pytest.raises(ValueError, match=message):
        grouped.hold_out(text)


HALF = Partition(np.array([0, 1]), np.array([1, 2]))
WRONG = [
    ("iid", {"test": 1.0}, "test is 1.0; expected a fraction"),
    ("iid", {"validation": -0.1}, "validation is -0.1"),
    ("iid", {"test": float("nan")}, "test is nan"),
    ("iid", {"test": 0.6, "validation": 0.4}, "leave examples to train on"),
    ("iid", {"examples": "every"}, "examples is 'every'; known: train, all"),
    ("iid", {"test_from": "server"}, "test_from is 'server'; known: clients"),
    ("iid", {"num_clients": None}, "needs num_clients"),
    ("iid", {"num_clients": 301}, "choose num_clients <= 300"),
    (
        "iid",
        {"examples": "all", "test_from": "official"},
        "train on official test examples",
    ),
    ("iidd", {}, "unknown partition 'iidd'"),
    ("iid", {"params": {"alpha": 1}}, "unknown parameter 'alpha'"),
    ("natural", {"num_clients": 6}, "have 7 natural clients"),
    (from_indices([[1], [1]]), {"num_clients": 2}, "an example to two clients"),
    (from_indices([[1], []]), {"num_clients": 2}, "1 of 2 clients have no examples"),
    (from_indices([[1], [400]]), {"num_clients": 2}, "outside of 0 .. 399"),
    (from_indices([[1], [2]]), {"num_clients": 3}, "the partition has 2"),
    (from_indices([[1]]), {"num_clients": 1, "params": {"a": 1}}, "ready Partition"),
    (HALF, {"num_clients": 2}, "a Partition of 2 examples has sizes"),
]


@pytest.mark.parametrize(("how", "options", "message"), WRONG)
def test_wrong_input_says_what_to_do(arrays, how, options, message):
    with pytest.raises(ValueError, match=message):
        federate(arrays, how, **{"num_clients": 4, "seed": 0, **options})


def test_empty_clients_are_counted():
    arrays = from_arrays(np.zeros((40, 1), np.uint8), np.zeros(40, int))
    with pytest.raises(
        ValueError, match=r"\d+ of 30 clients have no examples.*min_size"
    ):
        federate(
            arrays,
            "dirichlet",
            num_clients=30,
            seed=0,
            params={"alpha": 0.1, "min_size": 0},
        )


def test_no_official_test_examples():
    arrays = from_arrays(np.zeros((40, 1), np.uint8), np.zeros(40, int))
    with pytest.raises(ValueError, match="no official test examples"):
        federate(arrays, "iid", num_clients=2, seed=0, test_from="official")


@pytest.mark.parametrize("ids", [[], [0, 10], [-1], [0.5], [[1, 2]]])
def test_take_rejects_ids_that_are_not_clients(arrays, ids):
    found = federate(arrays, "iid", num_clients=10, seed=0)
    with pytest.raises(ValueError, match="client ids"):
        found.take(ids)


@pytest.mark.parametrize("fraction", [0.0, 1.0, 0.05, -1.0])
def test_hold_out_rejects_fractions_that_leave_nobody(arrays, fraction):
    found = federate(arrays, "iid", num_clients=10, seed=0)
    with pytest.raises(ValueError, match="fraction is"):
        found.hold_out(fraction, 0)


WITHOUT_DEVICES = """
import jax
from pfljax import data

arrays = data.load("digits")
federation = data.federate(arrays, "shards", num_clients=5, seed=0)
federation.hold_out(0.2, 0)
jax.config.update("jax_num_cpu_devices", 3)  # an error where JAX has started
print(len(jax.devices()))
"""


@pytest.mark.slow
def test_a_federation_starts_no_device():
    """How many devices a CPU has can be said until the first one is asked for."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DEVICES],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["3"], done.stderr


@settings(max_examples=20, deadline=None)
@given(share=st.floats(0, 0.9), seed=st.integers(0, 50))
def test_examples_of_the_server_are_nobodys_else(share, seed):
    rng = np.random.default_rng(0)
    x = np.arange(60.0, dtype=np.float32)[:, None]  # an example is its number
    arrays = from_arrays(x, rng.integers(0, 3, 60), name="numbered")
    count = int(share * 60)
    if share and not count:
        with pytest.raises(ValueError, match=r"which is none of 60 examples; give"):
            federate(arrays, "iid", num_clients=3, seed=seed, public=share)
        return
    found = federate(arrays, "iid", num_clients=3, seed=seed, public=share)
    held = found.index
    assert len(held) == 60 - count
    if not count:
        assert found.public is None
        return
    index = np.asarray(found.public.examples.x)[:, 0].astype(int)
    assert int(found.public.size) == len(index) == count
    assert sorted([*index, *held]) == list(range(60))
    np.testing.assert_array_equal(found.public.examples.y, arrays.y[index])
    assert found.manifest["public_examples"] == count
    assert found.take([0]).public is found.public


def test_without_public_examples_clients_have_what_they_had():
    arrays = load("digits")
    one = federate(arrays, "iid", num_clients=5, seed=3)
    same = federate(arrays, "iid", num_clients=5, seed=3, public=0.0)
    assert one.manifest == same.manifest
    with pytest.raises(ValueError, match=r"public is 1\.0; expected a frac"):
        federate(arrays, "iid", num_clients=5, seed=3, public=1.0)
    with pytest.raises(ValueError, match=r"set Federation\.public"):
        federate(
            arrays, from_indices([[0, 1], [2, 3]]), num_clients=2, seed=0, public=0.1
        )


def test_a_partition_may_be_written_with_its_parameters(arrays):
    one = federate(arrays, "shards:per_client=3", num_clients=4, seed=0)
    apart = {"params": {"per_client": 3}, "num_clients": 4, "seed": 0}
    other = federate(arrays, "shards", **apart)
    assert one.manifest == other.manifest
    assert one.manifest["params"] == {"per_client": 3}
    with pytest.raises(ValueError, match=r"'shards:per_client=3' has .* give one of"):
        federate(arrays, "shards:per_client=3", **apart)
