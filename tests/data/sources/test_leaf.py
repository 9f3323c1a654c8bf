"""LEAF's JSON layout: images and texts, users as natural clients."""

import json

import numpy as np
import pytest

from pfljax.data import federate, load


def write(folder, part, name, users, **more):
    """A file of LEAF; `users` is {user: (x, y)}."""
    (folder / part).mkdir(parents=True, exist_ok=True)
    held = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {u: {"x": x, "y": y} for u, (x, y) in users.items()},
        **more,
    }
    (folder / part / name).write_text(json.dumps(held))


def test_femnist_is_images_of_its_writers(tmp_path):
    grey = [[i / 784 for i in range(784)], [1.0] * 784]
    write(tmp_path, "train", "all_0.json", {"b": (grey, [3, 61])})
    write(tmp_path, "train", "all_1.json", {"a": (grey[:1], [0])})
    write(tmp_path, "test", "all_0.json", {"b": (grey[1:], [5])})
    found = load("leaf", path=str(tmp_path))
    assert found.x.shape == (4, 28, 28, 1)
    assert found.x.dtype == np.float32
    np.testing.assert_allclose(found.x[0].ravel(), np.float32(grey[0]))
    assert found.y.tolist() == [3, 61, 0, 5]
    assert found.client.tolist() == [1, 1, 0, 1]  # sorted by name
    assert found.official.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(("alphabet", "count"), [("leaf", 80), ("printable", 100)])
def test_shakespeare_is_places_in_an_alphabet(tmp_path, alphabet, count):
    texts = ["To be, or not", "that is the q"]
    write(tmp_path, "train", "x.json", {"ham": (texts, [" ", "~"])})
    write(tmp_path, "test", "x.json", {"ham": (texts[:1], ["u"])})
    found = load("leaf", path=str(tmp_path), alphabet=alphabet)
    assert found.num_classes == len(found.class_names) == count
    read = ["".join(found.class_names[i] for i in row) for row in found.x]
    assert read == [*texts, texts[0]]
    first = found.class_names[0] if alphabet == "leaf" else "~"  # LEAF has no "~"
    assert [found.class_names[i] for i in found.y] == [" ", first, "u"]


def test_users_become_clients(tmp_path):
    for part in ("train", "test"):
        users = {u: ([[float(i), 0.0] for i in range(8)], [0, 1] * 4) for u in "abc"}
        write(tmp_path, part, "all.json", users)
    found = federate(
        load("leaf", path=str(tmp_path)), "natural",
        num_clients=None, seed=0, examples="all", test=0.25,
    )  # fmt: skip
    assert found.num_clients == 3
    assert np.asarray(found.test.size).tolist() == [4, 4, 4]


def test_users_are_tested_on_the_examples_of_their_test_files(tmp_path):
    numbers = {"a": (4, 2), "b": (3, 0), "c": (5, 3)}  # examples to learn from, to test
    for place, part in enumerate(("train", "test")):
        users = {
            u: ([[float(ord(u)), 0.0]] * n[place], [0, 1, 1, 0, 1][: n[place]])
            for u, n in numbers.items()
            if n[place]
        }
        write(tmp_path, part, "all.json", users)
    arrays = load("leaf", path=str(tmp_path))
    found = federate(arrays, "natural", num_clients=None, seed=0, validation=0.0)
    assert np.asarray(found.train.size).tolist() == [4, 3, 5]
    assert np.asarray(found.test.size).tolist() == [2, 0, 3]
    x = np.asarray(found.test.examples.x)[:, 0]
    for k, user in enumerate("abc"):
        at, size = int(found.test.offset[k]), int(found.test.size[k])
        assert (x[at : at + size] == ord(user)).all()


def test_femnist_in_shards_as_leaf_writes_them(tmp_path):
    """Writers in several files of each split, one of them in two files."""

    def grey(value, n):
        return [[value] * 784] * n

    shards = {
        "train": [
            {"f0_1": (grey(0.1, 2), [0, 9]), "f0_2": (grey(0.2, 1), [10])},
            {"f1_3": (grey(0.3, 3), [36, 37, 1]), "f0_1": (grey(0.5, 1), [7])},
        ],
        "test": [
            {"f0_1": (grey(0.1, 1), [2]), "f0_2": (grey(0.2, 1), [3])},
            {"f1_3": (grey(0.3, 1), [4])},
            {"f2_4": ([], [])},
        ],
    }
    for part, files in shards.items():
        for i, users in enumerate(files):
            write(tmp_path, part, f"all_data_{i}_keep_0_{part}_9.json", users)
    found = load("leaf", path=str(tmp_path), classes=62)
    assert (found.num_classes, found.x.shape) == (62, (10, 28, 28, 1))
    assert found.official.tolist() == [0] * 7 + [1] * 3
    examples = {
        (int(k), int(y), round(float(x[0, 0, 0]), 1))
        for k, y, x in zip(found.client, found.y, found.x, strict=True)
    }
    assert examples == {
        (0, 0, 0.1), (0, 9, 0.1), (0, 7, 0.5), (0, 2, 0.1),
        (1, 10, 0.2), (1, 3, 0.2),
        (2, 36, 0.3), (2, 37, 0.3), (2, 1, 0.3), (2, 4, 0.3),
    }  # fmt: skip
    with pytest.raises(ValueError, match="give at least 38 classes"):
        load("leaf", path=str(tmp_path), classes=10)


def test_shakespeare_with_leafs_hierarchies_and_counts(tmp_path):
    """LEAF counts test examples before it drops any, and plays of dropped roles."""
    text = (
        "Now is the winter of our discontent made glorious summer by this sun of York; "
    )
    text += "And all the clouds that lour'd upon our house"
    examples = [text[i : i + 80] for i in range(20)], list(text[80:100])
    late = [text[100 - 80 : 100]], [text[100]]
    for part, held, count in (("train", examples, [20]), ("test", late, [99])):
        users = {"KING_RICHARD_III_GLOUCESTER": held}
        plays = ["KING_RICHARD_III", "HAMLET"]
        more = {"hierarchies": plays, "num_samples": count}
        write(tmp_path, part, f"all_data_{part}_8.json", users, **more)
    found = load("leaf", path=str(tmp_path))
    assert (found.x.shape, found.x.dtype, found.scale) == ((21, 80), np.uint8, 1.0)
    letters = found.class_names
    assert ["".join(letters[i] for i in row) for row in found.x] == [
        *examples[0],
        *late[0],
    ]
    assert "".join(letters[i] for i in found.y) == text[80:101]
    given = {"num_clients": None, "seed": 0, "validation": 0.0}
    one = federate(found, "natural", **given)
    assert [int(part.size[0]) for part in (one.train, one.test)] == [20, 1]


@pytest.mark.parametrize(
    ("train", "left_out"), [("ac", [1]), ("ab", [2]), ("bc", [0]), ("b", [0, 2])]
)
def test_users_with_test_examples_only_are_in_the_manifest(tmp_path, train, left_out):
    for part, users in (("train", train), ("test", "abc")):
        examples = {u: ([[float(ord(u)), 0.0]] * 5, [0, 1, 1, 0, 1]) for u in users}
        write(tmp_path, part, "all.json", examples)
    arrays = load("leaf", path=str(tmp_path))
    given = {"num_clients": None, "seed": 0, "validation": 0.0}
    for test_from in ("clients", "official"):
        found = federate(arrays, "natural", test_from=test_from, **given)
        assert found.manifest["left_out"] == left_out
        assert found.num_clients == len(train)
        x = np.asarray(found.train.examples.x)[:, 0]
        for part in (found.train, found.test):
            if test_from == "official" and part is found.test:
                continue
            for k, user in enumerate(train):
                at, size = int(part.offset[k]), int(part.size[k])
                assert size
                assert (x[at : at + size] == ord(user)).all()
    everybody = federate(arrays, "natural", examples="all", **given)
    assert everybody.num_clients == 3
    assert "left_out" not in everybody.manifest


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "has no .json file; .* --dataset leaf:path=FOLDER,classes=62"),
        ("{", "all.json cannot be read .Expecting property .*; expected {.users.: "),
        ('{"users": ["a"], "user_data": {}}', "cannot be read .KeyError: 'a'"),
        (
            '{"users": ["a"], "user_data": {"a": {"x": ["ab", "c"], "y": ["x", "y"]}}}',
            "of user 'a': texts differ in length",
        ),
        (
            '{"users": ["a"], "user_data": {"a": {"x": [[1], [2, 3]], "y": [0, 1]}}}',
            "of user 'a': setting an array element with a sequence",
        ),
        (
            '{"users": ["a", "b"], "user_data": {"a": {"x": [[1]], "y": [0]}, '
            '"b": {"x": [[1, 2]], "y": [0]}}}',
            "along dimension 1, the array at index 0 has size 1 and .* has size 2",
        ),
        (
            '{"users": ["a", "b"], "user_data": {"a": {"x": [[1]], "y": [0]}, '
            '"b": {"x": ["ab"], "y": ["c"]}}}',
            "mixes texts and numbers; give all users the same",
        ),
        (
            '{"users": ["a"], "user_data": {"a": {"x": [], "y": []}}}',
            "have no examples",
        ),
        (
            '{"users": ["a"], "user_data": {"a": {"x": [[1], [2]], "y": [0]}}}',
            "user 'a' has 2 x and 1 y",
        ),
        (
            '{"users": ["a"], "user_data": {"a": {"x": ["ab"], "y": [0]}}}',
            "of user 'a': x and y are int, str.*CelebA",
        ),
        ('{"users": 3, "user_data": {}}', "TypeError"),
        ("[" * 100_000, "all.json cannot be read .RecursionError"),
        (
            '{"users": ["a", "a"], "user_data": {"a": {"x": [[1]], "y": [0]}}}',
            r"all.json cannot be read .it lists a user twice",
        ),
        (
            '{"users": ["a"], "user_data": {"a": {"x": [[1]], "y": [1000000]}}}',
            "labels are from 1000000 to 1000000; .* or give classes=K",
        ),
        (
            '{"users": ["a"], "num_samples": [3], '
            '"user_data": {"a": {"x": [[1]], "y": [0]}}}',
            "all.json cannot be read .user 'a' has 1 examples, but num_samples says 3",
        ),
        (
            '{"users": ["a"], "num_samples": [1, 1], '
            '"user_data": {"a": {"x": [[1]], "y": [0]}}}',
            "num_samples has 2 numbers of 1 users",
        ),
        (
            '{"users": ["a"], "user_data": {"a": {"x": [[1]], "y": [1]}}}',
            "labels are from 1 to 1; .* or give classes=K",
        ),
        (
            '{"users": ["a"], "user_data": {"a": {"x": [[1]], "y": [1.5]}}}',
            "labels are of type float64; expected integers",
        ),
    ],
)
def test_other_files_are_one_line(tmp_path, content, expected):
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        if content:
            (tmp_path / part / "all.json").write_text(content)
    with pytest.raises(ValueError, match=expected) as error:
        load("leaf", path=str(tmp_path))
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_labels_may_be_whole_floats(tmp_path):
    """As in FedProx's synthetic files."""
    for part in ("train", "test"):
        write(tmp_path, part, "all.json", {"a": ([[0.1]] * 3, [0.0, 2.0, 1.0])})
    found = load("leaf", path=str(tmp_path))
    assert (found.y.tolist(), found.num_classes) == ([0, 2, 1] * 2, 3)


def test_a_copy_of_a_file_is_not_counted_twice(tmp_path):
    user = {"a": ([[0.1], [0.2]], [0, 1])}
    for part in ("train", "test"):
        write(tmp_path, part, "all.json", user)
        write(tmp_path, part, ".all.json", user)
        (tmp_path / part / "._all.json").write_bytes(b"\0\5\x16\7")  # as macOS writes
    assert len(load("leaf", path=str(tmp_path)).y) == 4
    for part in ([[0.1], [0.2]], [0, 1]), ([[0.2], [0.1]], [1, 0]), ([[0.2]], [1]):
        write(tmp_path, "train", "copy.json", {"a": part})
        with pytest.raises(ValueError, match=r"copy.json .*'a' has the same exampl"):
            load("leaf", path=str(tmp_path))


def test_users_that_only_test_are_newcomers(tmp_path):
    for part, users in (("train", "abc"), ("test", "de")):
        examples = {u: ([[float(ord(u)), 0.0]] * 5, [0, 1, 1, 0, 1]) for u in users}
        write(tmp_path, part, "all.json", examples)
    arrays = load("leaf", path=str(tmp_path))
    given = {"num_clients": None, "seed": 0}
    with pytest.raises(ValueError, match=r"examples='all' and unseen='off"):
        federate(arrays, "natural", **given)
    kept, unseen = federate(arrays, "natural", **given, examples="all").hold_out(
        "official=test"
    )
    assert kept.manifest["client_names"] == ["a", "b", "c"]
    assert unseen.manifest["client_names"] == ["d", "e"]


@pytest.mark.parametrize("classes", [0, -1, 2.5, "3", 2**40])
def test_classes_are_a_whole_number(tmp_path, classes):
    for part in ("train", "test"):
        write(tmp_path, part, "all.json", {"a": ([[1.0]], [0])})
    with pytest.raises(ValueError, match=rf"classes is {classes!r}; expected"):
        load("leaf", path=str(tmp_path), classes=classes)


def test_another_alphabet_is_refused(tmp_path):
    with pytest.raises(ValueError, match="alphabet is 'greek'; expected 'leaf' or"):
        load("leaf", path=str(tmp_path), alphabet="greek")
