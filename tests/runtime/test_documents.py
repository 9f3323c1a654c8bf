"""JSON objects in files: what is read is what was written, or one line says why not."""

import json
import os
from pathlib import Path

import pytest

from pfljax.registry import AtLeastOne
from pfljax.runs import forms
from pfljax.runtime import documents
from pfljax.runtime.files import FileError

CONTENT = {"width": 3, "names": ("a", "é"), "nested": {"share": 0.1, "none": None}}


def test_what_is_written_comes_back_without_its_checksum(tmp_path):
    file = tmp_path / "a.json"
    documents.write(file, CONTENT)
    assert documents.read(file) == CONTENT | {"names": ["a", "é"]}
    assert list(json.loads(file.read_text())) == [*CONTENT, documents.CHECKSUM]


def test_a_name_has_a_line_and_numbers_share_one(tmp_path):
    file = tmp_path / "a.json"
    content = {"sizes": {"train": [[1, 2], [3]]}, "of": [{"a": 1}, None], "none": {}}
    documents.write(file, content)
    assert documents.read(file) == content
    *lines, checksum, closing, end = file.read_text().split("\n")
    assert lines == [
        "{",
        ' "sizes": {',
        '  "train": [[1, 2], [3]]',
        " },",
        ' "of": [',
        "  {",
        '   "a": 1',
        "  },",
        "  null",
        " ],",
        ' "none": {},',
    ]
    assert (checksum[:10], closing, end) == (' "crc32": ', "}", "")


@pytest.mark.parametrize(
    ("content", "error", "told"),
    [
        ({"of": {10: 1, 9: 2}}, TypeError, "10 is the name of a value; expected a te"),
        ({"of": [[{10: 1, 9: 2}]]}, TypeError, "10 is the name of a value; expected "),
        ({"loss": [0.5, float("nan")]}, ValueError, "not JSON compliant"),
    ],
)
def test_what_would_be_read_otherwise_is_not_written(tmp_path, content, error, told):
    file = tmp_path / "a.json"
    with pytest.raises(error, match=told):
        documents.write(file, content)
    assert not file.exists()


def test_objects_anywhere_are_written_as_json_reads_them(tmp_path):
    file = tmp_path / "a.json"
    content = {"z": {}, "é": [[{"b": 1, "a": (2,)}], [], {"c": [None]}], "a{": ["{"]}
    documents.write(file, content)
    assert documents.read(file) == json.loads(json.dumps(content))
    assert json.loads(file.read_text())[documents.CHECKSUM] == documents.crc(content)


def test_no_flipped_bit_goes_unnoticed(tmp_path):
    file = tmp_path / "a.json"
    documents.write(file, CONTENT)
    whole = file.read_bytes()
    wanted = documents.read(file)
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        try:
            content = documents.read(file)
        except FileError:
            continue
        # White space may change, and the name of the checksum: then nothing else did.
        assert {name: content[name] for name in wanted} == wanted


def test_what_a_hand_changed_is_refused_unless_it_may(tmp_path):
    file = tmp_path / "a.json"
    documents.write(file, CONTENT)
    file.write_text(file.read_text().replace("3", "4", 1))
    with pytest.raises(FileError, match="does not match its crc32; remove that if"):
        documents.read(file)
    assert documents.read(file, edited=True)["width"] == 4
    del (content := json.loads(file.read_text()))[documents.CHECKSUM]
    file.write_text(json.dumps(content))
    assert documents.read(file)["width"] == 4


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "Expecting value"),
        ("[]", "it is a list; expected a JSON object"),
        ("null", "it is null; expected a JSON object"),
        ("{}", "it lacks width, of"),
        ('{"width": "4", "of": {}}', 'width is "4"; expected a whole number'),
        ('{"width": true, "of": {}}', "width is true; expected a whole number"),
        ('{"width": -2, "of": {}}', "width is -2; expected a whole number, at least 1"),
        ('{"width": 2, "of": {"a": [[1], 2]}}', r"a\[1\] is 2; expected a list"),
        ('{"width": 2, "of": {"a": [[1, 0.5]]}}', r"a\[0\]\[1\] is 0.5; expected a w"),
        ('{"width": 2, "of": {}, "more": 3}', "more is 3; expected a text"),
        ('{"width": 2, "of": {"a": [[1, true]]}}', r"a\[0\]\[1\] is true; expected a"),
        ("[" * 100_000, "recursion"),
        (b"\xff{}", "codec can't decode"),
    ],
)
def test_another_form_is_told(tmp_path, text, told):
    file = tmp_path / "a.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    form = {"width": (AtLeastOne, None), "of": {str: [[int]]}, "more?": str}
    with pytest.raises(FileError, match=rf"a\.json is missing or damaged \(.*{told}"):
        documents.read(file, form)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, "it is no file"),
        (Path.mkdir, "it is no file"),
        (lambda path: None, "No such file or directory"),
    ],
)
def test_what_is_no_file_is_told(tmp_path, make, told):
    file = tmp_path / "a.json"
    make(file)
    with pytest.raises(FileError, match=rf"a\.json is missing or damaged \({told}\)"):
        documents.read(file)


@pytest.mark.parametrize("content", [[], {}, None, 3, {"rounds": "x", "width": "x"}])
@pytest.mark.parametrize("name", [n for n, form in forms.FORMS.items() if form])
def test_every_file_of_a_run_has_a_form(name, content):
    fits = name == "environment.json" and isinstance(content, dict)
    assert bool(documents.misfit(content, forms.FORMS[name])) != fits
