"""Folders as Hugging Face's `datasets` 5.2 writes them by save_to_disk."""

import io
import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from pfljax.data import federate, load

OPTIONS = {"client": "user", "groups": "domain"}
FEATURES = {
    "image": {"_type": "Image"},
    "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
    "user": {"dtype": "string", "_type": "Value"},
    "domain": {"names": ["photo", "art"], "_type": "ClassLabel"},
}
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def encode(pixels):
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return {"bytes": content.getvalue(), "path": None}


def save(folder, columns, features, shards=1):
    """One split: state.json, dataset_info.json and the Arrow streams of its rows."""
    folder.mkdir(parents=True)
    about = {b"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table(columns).replace_schema_metadata(about)
    names = [f"data-{k:05}-of-{shards:05}.arrow" for k in range(shards)]
    size = -(-len(table) // shards)
    for k, name in enumerate(names):
        with pa.ipc.new_stream(str(folder / name), table.schema) as stream:
            stream.write_table(table.slice(k * size, size), max_chunksize=2)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))


def save_images(folder, images, shards=1):
    """The users a and b in turn; a's images are photos, b's are art."""
    count = len(images)
    columns = {
        "image": pa.array([encode(pixels) for pixels in images], IMAGE),
        "label": [k // 2 % 2 for k in range(count)],
        "user": ["ab"[k % 2] for k in range(count)],
        "domain": [k % 2 for k in range(count)],
    }
    save(folder, columns, FEATURES, shards)


@pytest.fixture
def images():
    pixels = np.random.default_rng(0).integers(0, 256, (12, 5, 4, 3))
    return pixels.astype(np.uint8)


@pytest.fixture
def folder(tmp_path, images):
    save_images(tmp_path / "pets" / "train", images[:8], shards=2)
    save_images(tmp_path / "pets" / "test", images[8:])
    splits = json.dumps({"splits": ["train", "test"]})
    (tmp_path / "pets" / "dataset_dict.json").write_text(splits)
    return tmp_path / "pets"


def test_splits_images_and_names_are_kept(folder, images):
    arrays = load("huggingface", path=str(folder), **OPTIONS)
    np.testing.assert_array_equal(arrays.x, images)
    assert arrays.class_names == ("cat", "dog")
    assert arrays.y.tolist() == [0, 0, 1, 1] * 3
    assert arrays.official.tolist() == [0] * 8 + [1] * 4
    found = federate(arrays, "natural", num_clients=None, seed=0)
    assert found.manifest["client_names"] == ["a", "b"]
    assert found.manifest["groups"] == {"domain": ["photo", "art"]}
    assert found.test.size.tolist() == [2, 2]
    one = load("huggingface", path=str(folder / "test"), **OPTIONS, size=2)
    assert one.x.shape == (4, 2, 2, 3)


def test_a_grey_image_before_the_first_in_colour(tmp_path, images):
    grey = images[:3, :, :, 0]
    save_images(tmp_path / "pets", [*grey, *images[3:5]])
    arrays = load("huggingface", path=str(tmp_path / "pets"), **OPTIONS)
    np.testing.assert_array_equal(arrays.x[:3], np.repeat(grey[..., None], 3, axis=-1))
    np.testing.assert_array_equal(arrays.x[3:], images[3:5])


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([[1, 2, 3]] * 6, np.int32),
        ([[[0.5, 1.5], [2.5, 3.5]]] * 6, np.float32),
        (pa.array([[1, 255]] * 6, pa.list_(pa.uint8())), np.uint8),
    ],
)
def test_lists_are_examples(tmp_path, lists, expected):
    save(tmp_path / "lists", {"x": lists, "label": [0, 1] * 3}, {})
    arrays = load("huggingface", path=str(tmp_path / "lists"))
    assert arrays.x.dtype == expected
    np.testing.assert_array_equal(arrays.x, pa.array(lists).to_pylist())


def leave_out(folder):
    (folder / "train" / "data-00001-of-00002.arrow").unlink()


def cut(folder):
    file = folder / "test" / "data-00000-of-00001.arrow"
    file.write_bytes(file.read_bytes()[:300])


def rename(folder):
    (folder / "test").rename(folder / "dev")
    splits = json.dumps({"splits": ["train", "dev"]})
    (folder / "dataset_dict.json").write_text(splits)


@pytest.mark.parametrize(
    ("damage", "options", "message"),
    [
        (None, {"path": "none"}, "none has no state.json and no dataset_dict.json"),
        (None, {"label": "kind"}, "no column 'kind'; it has image, label"),
        (None, {"groups": ""}, r"'image' has images .* skip=\(domain\)"),
        (rename, {}, "split 'dev' is none of train, test, validation"),
        (cut, {}, "pets cannot be read"),
        (leave_out, {}, "data-00001-of-00002.arrow"),
    ],
)
def test_what_is_no_such_folder_is_refused(folder, damage, options, message):
    if damage:
        damage(folder)
    with pytest.raises((ValueError, OSError), match=message):
        load("huggingface", **{"path": str(folder), **OPTIONS} | options)


def test_images_of_two_sizes_are_refused(tmp_path, images):
    save_images(tmp_path / "pets", [images[0], images[1], images[2][:4]])
    with pytest.raises(ValueError, match=r"one shape, as size= makes"):
        load("huggingface", path=str(tmp_path / "pets"), **OPTIONS)
