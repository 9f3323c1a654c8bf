"""Shakespeare by role: windows of the text, the official split, and dropped roles."""

import json
import lzma

import numpy as np
import pytest

from pfljax.data import MissingDataset, federate, load, prepare
from pfljax.data.sources import characters, shakespeare

TEXT = "  To be, or not\tto be:\nthat is   the question " * 20
PLAIN = " ".join(TEXT.split())


def read(x, names):
    return ["".join(names[i] for i in row) for row in x]


def keep(raw, texts):
    """The packed file of `texts` below `raw`."""
    (raw / "packed").mkdir(parents=True, exist_ok=True)
    (raw / shakespeare.FILE).write_bytes(lzma.compress(json.dumps(texts).encode()))
    return raw


@pytest.mark.parametrize("stride", [1, 7, 80, 100])
def test_examples_are_windows_of_the_text(stride):
    found = shakespeare.examples({"b/HAM": TEXT}, stride, 1, 0.0, "leaf")
    starts = range(0, len(PLAIN) - 80, stride)
    assert read(found.x, found.class_names) == [PLAIN[i : i + 80] for i in starts]
    assert [found.class_names[y] for y in found.y] == [PLAIN[i + 80] for i in starts]
    assert found.official.tolist() == [0] * len(starts)
    assert (found.x.dtype, found.scale, found.num_classes) == (np.uint8, 1.0, 80)


@pytest.mark.parametrize("stride", [1, 7, 80, 100])
def test_test_examples_begin_after_what_train_examples_see(stride):
    """Numbered characters: an example's characters follow from its number."""
    letters = characters.ALPHABETS["printable"][:94]  # without white space
    text = "".join(letters[i // 94] + letters[i % 94] for i in range(1500))
    found = shakespeare.examples({"a": text}, stride, 1, 0.2, "printable")
    at = [text.index("".join(found.class_names[c] for c in row)) for row in found.x]
    train = [i for i, part in zip(at, found.official, strict=True) if part == 0]
    test = [i for i, part in zip(at, found.official, strict=True) if part == 1]
    count = len(range(0, len(text) - 80, stride))
    assert train == [i * stride for i in range(int(0.8 * count))]
    assert test[0] >= train[-1] + 80 > test[0] - stride
    assert test == list(range(test[0], len(text) - 80, stride))


def test_small_roles_are_left_out():
    texts = {"a": "x" * 80, "b": "y" * 200, "c": "z" * 1000, "d": "w" * 1500}
    letter = characters.ALPHABETS["leaf"].index

    def kept(**given):
        given = {"stride": 10, "min_size": 1, "test": 0.0, "alphabet": "leaf", **given}
        found = shakespeare.examples(texts, *given.values())
        sizes = np.bincount(found.client)
        firsts = [found.x[found.client == k][0, 0] for k in range(len(sizes))]
        return {"wxyz"[i - letter("w")]: n for i, n in zip(firsts, sizes, strict=True)}

    assert kept() == {"y": 12, "z": 92, "w": 142}
    assert kept(min_size=92) == {"z": 92, "w": 142}
    assert kept(min_size=93) == {"w": 142}
    # 12 examples: 9 to learn from, and the test examples would begin with the 17th
    assert kept(test=0.2) == {"z": 92 - 7, "w": 142 - 7}
    with pytest.raises(
        ValueError, match="no role has train and test examples, and 143"
    ):
        kept(min_size=143)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"stride": 0}, "stride is 0; expected at least 1"),
        ({"min_size": 0}, "min_size is 0; expected at least 1"),
        ({"test": 1.0}, "test is 1.0; expected a number >= 0 and below 1"),
        ({"alphabet": "greek"}, "alphabet is 'greek'; expected 'leaf' or 'printable'"),
        ({"stride": 0.5}, "stride is 0.5; expected a whole number"),
    ],
)
def test_wrong_options_are_refused(cache_dir, tmp_path, given, expected):
    prepare("shakespeare_roles", raw_dir=keep(tmp_path / "raw", {"a": TEXT}))
    with pytest.raises(ValueError, match=expected):
        load("shakespeare_roles", **given)


def test_a_damaged_or_missing_file_is_one_line(cache_dir, tmp_path):
    name = "shakespeare_roles"
    with pytest.raises(MissingDataset, match=r"run: pfljax prepare .*--raw FOLDER"):
        load(name)
    with pytest.raises(MissingDataset, match=r"No such file.*shakespeare_roles"):
        prepare(name, raw_dir=tmp_path)
    raw = keep(tmp_path / "raw", {"a": 1})
    with pytest.raises(ValueError, match=r"another layout; expected {role: text}"):
        prepare(name, raw_dir=raw)
    (raw / shakespeare.FILE).write_bytes(b"\xfd7zX")
    with pytest.raises(ValueError, match="cannot be read"):
        prepare(name, raw_dir=raw)


def test_roles_are_the_clients(cache_dir, tmp_path):
    texts = {"z/MACBETH": "b" * 600, "a/HAMLET": "a" * 1000, "a/Page": "c" * 20}
    assert prepare("shakespeare_roles", raw_dir=keep(tmp_path / "raw", texts)).exists()
    arrays = load("shakespeare_roles", stride=20)
    found = federate(arrays, "natural", num_clients=None, seed=0, validation=0.0)
    assert np.asarray(found.train.size).tolist() == [36, 20]  # int(0.8 n) of 46, 26
    assert np.asarray(found.test.size).tolist() == [7, 3]
    for k, letter in enumerate("ab"):
        for part in (found.train, found.test):
            at, size = int(part.offset[k]), int(part.size[k])
            examples = np.asarray(part.examples.x[at : at + size])
            assert {arrays.class_names[i] for i in examples.ravel()} == {letter}


def test_the_real_roles(raw_dir, cache_dir):
    file = raw_dir / shakespeare.FILE
    if not file.is_file():
        pytest.skip(f"no {file}")
    texts = json.loads(lzma.decompress(file.read_bytes()))
    assert len(texts) == 1347
    prepare("shakespeare_roles", raw_dir=raw_dir)
    sizes = [len(" ".join(texts[role].split())) for role in sorted(texts)]
    windows = [len(range(0, n - 80, 80)) for n in sizes]
    whole = load("shakespeare_roles", stride=80, test=0.0)
    assert np.bincount(whole.client).tolist() == [n for n in windows if n]
    large = load("shakespeare_roles", stride=80, min_size=300)
    assert np.bincount(large.client).tolist() == [n for n in windows if n >= 300]
    known = np.mean(large.x > 0)  # the first letter stands for what is not known
    assert known > 0.9999
