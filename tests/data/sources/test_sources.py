"""Sources: digits, synthetic data, arrays at the edge, TFDS import, the cache."""

import gzip
import io
import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pfljax.data import from_arrays
from pfljax.data.sources import (
    DATASETS,
    MissingDataset,
    load,
    prepare,
    raw_archives,
)
from pfljax.data.sources.embedded import digits
from pfljax.data.sources.synthetic import synthetic, synthetic_iid
from pfljax.data.sources.transforms import resize, thin

GOOD_X, GOOD_Y = np.zeros((4, 2)), np.array([0, 1, 2, 0])


def test_digits_are_the_uci_images():
    found = digits()
    assert found.x.shape == (1797, 8, 8, 1)
    assert found.x.dtype == np.uint8
    assert (found.x.min(), found.x.max()) == (0, 16)
    counts = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.bincount(found.y).tolist() == counts
    assert found.x[0, 0].ravel().tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert (found.scale, found.num_classes) == (16.0, 10)
    assert "CC BY 4.0" in found.source


@pytest.mark.parametrize("make", [synthetic, synthetic_iid])
def test_synthetic_is_reproducible_and_shaped(make):
    found, again, other = make(seed=1), make(seed=1), make(seed=2)
    np.testing.assert_array_equal(found.x, again.x)
    assert len(found.y) != len(other.y)
    assert found.x.shape == (len(found.y), 60)
    assert found.x.dtype == np.float32
    sizes = np.bincount(found.client)
    assert len(sizes) == 30
    assert sizes.min() >= 50


def test_synthetic_sizes_and_spread_follow_the_card():
    found = synthetic(clients=400, alpha=0.5, beta=2.0, seed=0)
    sizes = np.bincount(found.client) - 50
    assert np.median(sizes) == pytest.approx(np.exp(4), rel=0.35)
    assert np.std(np.log(sizes + 0.5)) == pytest.approx(2.0, rel=0.1)
    big = np.flatnonzero(sizes > 400)
    centred = np.concatenate(
        [found.x[found.client == k] - found.x[found.client == k].mean(0) for k in big]
    )
    expected = np.arange(1, 61) ** -1.2
    np.testing.assert_allclose(centred.var(0) / expected, 1, atol=0.05)
    means = np.stack([found.x[found.client == k].mean(0) for k in range(400)])
    assert means.mean(1).std() == pytest.approx(2.0, rel=0.1)


def test_synthetic_models_are_shared_by_all_or_own_to_each():
    """Least squares on half the clients transfers to the others only if they share."""

    def transfer(found):
        x = np.c_[found.x, np.ones(len(found.y))]
        known = found.client % 2 == 0
        target = np.eye(10)[found.y[known]]
        weight = np.linalg.lstsq(x[known], target, rcond=None)[0]
        return np.mean(np.argmax(x[~known] @ weight, 1) == found.y[~known])

    assert transfer(synthetic_iid(seed=3)) > 0.7
    assert transfer(synthetic(seed=3)) < 0.5


OFFICIAL = [("synthetic_0_0", 0.0), ("synthetic_0.5_0.5", 0.5), ("synthetic_1_1", 1.0)]


@pytest.mark.parametrize(
    ("file", "value"),
    [
        OFFICIAL[1],
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (OFFICIAL[0], OFFICIAL[2], ("synthetic_iid", None))
        ),
    ],
)
def test_synthetic_has_the_statistics_of_the_official_test_parts(raw_dir, file, value):
    """Over seeds, the official part's statistics lie inside the range of ours."""
    stored = json.loads(
        (raw_dir / "fedprox_synthetic" / f"{file}.mytest.json").read_text()
    )
    users = [stored["user_data"][user] for user in stored["users"]]
    x = [np.array(user["x"]) for user in users]
    y = [np.array(user["y"], int) for user in users]
    official = _statistics(x, y)
    ours = []
    for seed in range(30):
        found = (
            synthetic_iid(seed=seed)
            if value is None
            else synthetic(alpha=value, beta=value, seed=seed)
        )
        groups = [found.client == k for k in range(30)]
        shown = [np.flatnonzero(group)[: max(5, group.sum() // 10)] for group in groups]
        ours.append(
            _statistics([found.x[g] for g in shown], [found.y[g] for g in shown])
        )
    for name, seen in official.items():
        values = np.array([one[name] for one in ours])
        low, high = values.min(), values.max()
        slack = 0.25 * (high - low)
        assert low - slack <= seen <= high + slack, (name, seen, low, high)


def _statistics(x, y):
    means = np.stack([own.mean(0) for own in x])
    within = np.concatenate([own - own.mean(0) for own in x if len(own) > 9])
    shares = np.stack([np.bincount(own, minlength=10) / len(own) for own in y])
    return {
        "median size": np.median([len(own) for own in y]),
        "spread of centres": means.mean(1).std(),
        "spread of means": means.std(),
        "variance": np.mean(within.var(0) / np.arange(1, 61) ** -1.2),
        "largest class share": shares.max(1).mean(),
        "classes a client": (shares > 0).sum(1).mean(),
    }


WRONG = [
    (np.zeros((0, 2)), [], {}, r"x has shape \[0, 2\]"),
    (np.zeros(4), GOOD_Y, {}, r"x has shape \[4\]"),
    (GOOD_X, GOOD_Y[:3], {}, r"y has shape \[3\], but x has 4 examples"),
    (np.full((4, 2), np.nan), GOOD_Y, {}, "NaN or infinity in 4 of 4 examples"),
    (np.array([[0.0], [np.inf], [0], [0]]), GOOD_Y, {}, "first in example 1"),
    (np.full((4, 2), "a"), GOOD_Y, {}, "x is of type <U1"),
    (GOOD_X, GOOD_Y - 1, {}, "labels are from -1 to 1;"),
    (GOOD_X, GOOD_Y + 1, {}, "labels are from 1 to 3;"),
    (GOOD_X, GOOD_Y, {"num_classes": 2}, "give at least 3 classes"),
    (GOOD_X, GOOD_Y + 0.5, {"task": "classes"}, "labels are of type float64"),
    (GOOD_X, GOOD_Y, {"client": [0, 1]}, r"client has shape \[2\]"),
    (GOOD_X, GOOD_Y, {"client": [0.5] * 4}, "client ids are of type float64"),
    (GOOD_X, GOOD_Y, {"client": ["a", None, "b", "a"]}, "client ids are of type objec"),
    (GOOD_X, [0, 1, np.nan, 0], {}, "labels are of type float64"),
    (GOOD_X, GOOD_Y, {"official": [0, 1, 2, 3]}, "official has values other than"),
    (GOOD_X, GOOD_Y, {"class_names": ["a"]}, "expected a list of 3 texts"),
    (GOOD_X, GOOD_Y, {"scale": 0.0}, "scale is 0.0"),
    (GOOD_X, GOOD_Y, {"groups": ["a"] * 4}, "groups is .*expected values .* by name"),
    (GOOD_X, np.full((4, 3), -1), {"task": "tokens"}, "from -1 to -1; the task 'tok"),
]


@pytest.mark.parametrize(("x", "y", "options", "message"), WRONG)
def test_wrong_arrays_are_rejected(x, y, options, message):
    with pytest.raises(ValueError, match=message):
        from_arrays(x, y, **options)


def test_from_arrays_keeps_pixels_and_names_clients_in_order():
    pixels = np.zeros((4, 2, 2, 1), np.uint8)
    found = from_arrays(pixels, GOOD_Y, client=["b", "a", "b", "c"])
    assert found.x.dtype == np.uint8
    assert found.scale == 255.0
    assert found.client.tolist() == [1, 0, 1, 2]
    assert from_arrays(GOOD_X, GOOD_Y).x.dtype == np.float32


CELLS = {  # as pandas gives them
    "texts": (["b", "a", "b", "c"], [1, 0, 1, 2]),
    "integers": ([7, 3, 7, 9], [1, 0, 1, 2]),
    "numbers": ([7.0, np.int64(3), np.float32(7), 9], [1, 0, 1, 2]),
}


@pytest.mark.parametrize(("cells", "client"), CELLS.values(), ids=CELLS)
def test_objects_of_one_type_are_taken(cells, client):
    objects = {"client": np.array(cells, object), "official": np.array([0.0, 1, 2, 0])}
    found = from_arrays(GOOD_X, np.array(GOOD_Y, object), **objects)
    assert found.client.tolist() == client
    assert found.official.tolist() == [0, 1, 2, 0]
    assert found.y.tolist() == np.asarray(GOOD_Y).tolist()
    assert from_arrays(GOOD_X, np.asarray(GOOD_Y, float)).y.dtype == np.int32
    assert from_arrays(GOOD_X, [True, False, True, True]).y.tolist() == [1, 0, 1, 1]


def test_load_names_what_it_knows(cache_dir, tmp_path):
    with pytest.raises(ValueError, match=r"unknown parameter 'size'.*known: every"):
        load("digits", size=3)
    with pytest.raises(ValueError, match="known: alpha, beta, clients, every, seed"):
        load("synthetic", gamma=1.0)
    with pytest.raises(ValueError, match="needs the parameter 'path'"):
        load("npz")
    with pytest.raises(
        ValueError, match="unknown data set 'mnits'; did you mean 'mnist'"
    ):
        load("mnits")
    with pytest.raises(ValueError, match="clients is 0"):
        load("synthetic", clients=0)
    with pytest.raises(ValueError, match=r"alpha is -1.0"):
        load("synthetic", alpha=-1.0)
    with pytest.raises(ValueError, match="needs no preparing"):
        prepare("digits")
    with pytest.raises(ValueError, match="unknown data set 'nope'; known: cifar10"):
        prepare("nope")
    assert set(DATASETS) >= {"digits", "synthetic", "mnist", "emnist", "npz"}


def test_every_keeps_one_row_of_so_many():
    found, whole = load("digits", every=3), digits()
    np.testing.assert_array_equal(found.x, whole.x[::3])
    np.testing.assert_array_equal(found.y, whole.y[::3])
    assert (len(found.official), found.client) == (599, None)
    assert (found.num_classes, found.scale) == (10, 16.0)
    assert found.name == "digits:every=3"  # row numbers are of these 599
    assert thin(whole, 1) is whole
    assert thin(whole._replace(name="a:b=1"), 2).name == "a:b=1,every=2"


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    every=st.integers(1, 9),
    seed=st.integers(0, 5),
)
def test_every_takes_its_share_of_each_split_and_client(sizes, every, seed):
    rng = np.random.default_rng(seed)
    client = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    count = len(client)
    official = rng.integers(0, 2, count).astype(np.uint8)
    x = np.arange(count, dtype=np.float32)[:, None]
    whole = from_arrays(x, np.zeros(count, int), client=client, official=official)
    if every > count:
        return
    found = thin(whole, every)
    kept = found.x[:, 0].astype(int)
    assert kept.tolist() == sorted(set(kept.tolist()))
    assert len(kept) == -(-count // every)
    np.testing.assert_array_equal(found.official, official[kept])
    left, number = np.unique(client[kept], return_inverse=True)
    np.testing.assert_array_equal(found.client, number)  # 0 .. C - 1, none missing
    for own in range(len(sizes)):
        for split in (0, 1):
            count = np.sum((client == own) & (official == split))
            taken = np.sum((client[kept] == own) & (official[kept] == split))
            assert abs(taken - count / every) < 1
    assert len(left) >= sum(size >= 2 * every for size in sizes)


@pytest.mark.parametrize("every", [0, -2, 1.5, True, "two", 1798])
def test_every_is_a_whole_number_of_examples(every):
    with pytest.raises(ValueError, match=r"every is .*expected a whole number from 1"):
        load("digits", every=every)


def test_npz_file(tmp_path):
    path = str(tmp_path / "mine.npz")
    with pytest.raises(ValueError, match="no file"):
        load("npz", path=path)
    np.savez(path, x=GOOD_X)
    with pytest.raises(ValueError, match="lacks 'y'"):
        load("npz", path=path)
    np.savez(path, x=GOOD_X, y=GOOD_Y, client=[5, 5, 9, 9])
    found = load("npz", path=path, scale=3)
    assert (found.name, found.client.tolist()) == ("mine", [0, 0, 1, 1])
    assert found.scale == 3


def test_a_missing_set_is_one_line_with_the_command(cache_dir):
    message = r"^data set 'mnist' is not prepared; run: pfljax prepare mnist$"
    with pytest.raises(MissingDataset, match=message):
        load("mnist")
    with pytest.raises(
        MissingDataset, match=r"^cannot prepare 'mnist' from raw[^\n]*$"
    ):
        prepare("mnist", raw_dir=cache_dir)


def _idx_files(folder, count):
    """Small idx archives as MNIST's; returns images and labels of both splits."""
    folder.mkdir(parents=True)
    rng, made = np.random.default_rng(0), {}
    for prefix, n in (("train", count), ("t10k", count // 2)):
        x = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        y = rng.integers(0, 10, n, dtype=np.uint8)
        for kind, values in (("images-idx3", x), ("labels-idx1", y)):
            head = bytes([0, 0, 8, values.ndim])
            head += np.array(values.shape, ">u4").tobytes()
            file = folder / f"{prefix}-{kind}-ubyte.gz"
            file.write_bytes(gzip.compress(head + values.tobytes()))
        made[prefix] = (x, y)
    return made


def _pairs(images, labels):
    """Images with labels in any order: TFDS has an order of its own."""
    return {(x.tobytes(), int(y)) for x, y in zip(images, labels, strict=True)}


def _png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    file.seek(0)
    return file


def _write_tfds(home, made):
    """Writes MNIST's files of `_idx_files` as TFDS writes them."""
    import tensorflow_datasets as tfds

    builder = tfds.builder("mnist", data_dir=home, file_format="array_record")
    splits = {
        name: enumerate(
            {"image": _png(image), "label": label}
            for image, label in zip(*made[prefix], strict=True)
        )
        for name, prefix in raw_archives.PREFIX.items()
    }
    builder._split_generators = lambda *_, **__: splits
    config = tfds.download.DownloadConfig(
        try_download_gcs=False, compute_stats=tfds.download.ComputeStatsMode.SKIP
    )
    builder.download_and_prepare(download_config=config)


def test_raw_archives_have_the_order_of_tfds(cache_dir, tmp_path, monkeypatch):
    made = _idx_files(tmp_path / "raw" / "mnist", 40)
    _write_tfds(tmp_path / "tfds", made)
    from_tfds = load("mnist", data_dir=tmp_path / "tfds")
    monkeypatch.setenv("PFLJAX_RAW_DIR", str(tmp_path / "raw"))
    assert prepare("mnist").is_file()
    for found in (from_tfds, load("mnist")):
        for official, prefix in enumerate(("train", "t10k")):
            held = found.official == official
            assert _pairs(found.x[held], found.y[held]) == _pairs(*made[prefix])
        assert found.official.tolist() == [0] * 40 + [1] * 20
        assert (found.num_classes, found.scale) == (10, 255.0)
        np.testing.assert_array_equal(found.x, from_tfds.x)
        np.testing.assert_array_equal(found.y, from_tfds.y)
        assert found[4:] == from_tfds[4:]
    assert not list(cache_dir.glob(".pfljax-*"))


def test_a_set_of_tfds_is_decoded_once(cache_dir, tmp_path):
    made = _idx_files(tmp_path / "raw" / "mnist", 40)
    _write_tfds(cache_dir / "tfds", made)
    first = load("mnist")
    shutil.rmtree(cache_dir / "tfds")
    np.testing.assert_array_equal(load("mnist").x, first.x)


def test_raw_archives_are_imported_again_where_they_are_given(cache_dir, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    _idx_files(old / "mnist", 40)
    file = prepare("mnist", raw_dir=old)
    _idx_files(new / "mnist", 60)
    assert prepare("mnist") == file
    assert len(load("mnist").y) == 60
    assert prepare("mnist", raw_dir=new) == file
    assert len(load("mnist").y) == 90
    with pytest.raises(MissingDataset, match=r"'mnist' .*No such file.*none"):
        prepare("mnist", raw_dir=tmp_path / "none")


def test_mnist_has_the_order_of_tfds(raw_dir):
    arrays = raw_archives.read("mnist", raw_dir)
    assert np.sum(arrays.official == 0) == 60_000
    assert arrays.y[:8].tolist() == [4, 1, 0, 7, 8, 1, 2, 7]


@pytest.mark.slow
def test_cifar10_has_the_published_moments(raw_dir):
    arrays = raw_archives.read("cifar10", raw_dir)
    train = arrays.official == 0
    pixels = arrays.x[train].reshape(-1, 3)
    assert len(pixels) == 50_000 * 1024
    counts = np.stack([np.bincount(c, minlength=256) for c in pixels.T]) / len(pixels)
    level = np.arange(256) / 255
    mean = counts @ level
    std = np.sqrt(counts @ level**2 - mean**2)
    np.testing.assert_allclose(mean, [0.49140, 0.48216, 0.44653], atol=1e-5)
    np.testing.assert_allclose(std, [0.24703, 0.24348, 0.26159], atol=1e-5)
    assert np.bincount(arrays.y[train]).tolist() == [5000] * 10
    first = raw_archives.tfds_order("train", 50_000).tolist().index(0)
    assert arrays.class_names[arrays.y[first]] == "frog"


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_resized_each_on_its_own(channels):
    rng = np.random.default_rng(0)
    flat = np.broadcast_to(
        rng.integers(0, 256, (2, 1, 1, channels)), (2, 4, 4, channels)
    )
    halves = np.repeat([0, 200], 2)[None, None, :, None]  # dark left, bright right
    x = np.concatenate([flat, np.broadcast_to(halves, (1, 4, 4, channels))])
    found = resize(from_arrays(x.astype(np.uint8), [0, 1, 2]), 2)
    assert found.x.shape == (3, 2, 2, channels)
    assert found.x.dtype == np.uint8
    np.testing.assert_array_equal(found.x[:2], flat[:, :2, :2])
    dark, bright = found.x[2, 0, 0, 0], found.x[2, 0, 1, 0]
    assert 0 < dark < 50  # the filter reaches a pixel over the border
    assert 150 < bright < 200
    assert resize(found, None) is found
    with pytest.raises(ValueError, match="size is 0; expected at least 1"):
        load("cifar10", size=0)
