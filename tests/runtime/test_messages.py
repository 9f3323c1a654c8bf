"""What processes send each other comes back as it was, or is refused."""

import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from pfljax.runs import checkpoint, folder
from pfljax.runtime import files, messages


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -0.5,
        math.inf,
        "±",
        [],
        {},
        [{"round": 1, "loss": None}, {"array": 0}, {"items": {"value": [1]}}],
        2**70,
    ],
)
def test_values_of_json_come_back(value):
    answer = messages.unpack(messages.pack(value))
    assert answer == value
    assert type(answer) is type(value)


def test_arrays_come_back_with_their_types():
    arrays = {
        "round": np.arange(3),
        "accuracy": np.asfortranarray(np.random.default_rng(0).random((4, 3), "f")),
        "empty": np.zeros((0, 2), bool),
        "one": np.asarray(2.5),
    }
    answer = messages.unpack(messages.pack([arrays, "end"]))
    assert answer[1] == "end"
    assert list(answer[0]) == list(arrays)
    for name, array in arrays.items():
        assert answer[0][name].dtype == array.dtype
        np.testing.assert_array_equal(answer[0][name], array)


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1: 2},
        {1, 2},
        b"bytes",
        Path(),
        np.float32(1),
        print,
        np.array([print]),
        [{"a": object()}],
    ],
)
def test_anything_else_is_refused_by_who_sends(value):
    with pytest.raises(TypeError, match="cannot be sent to the other processes"):
        messages.pack(value)


class Special(folder.FolderError):
    pass


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("lr is 0"), ValueError),
        (UnicodeError("odd"), ValueError),
        (Special("theirs"), files.FolderError),
        (checkpoint.CheckpointError("gone"), files.CheckpointError),
        (files.FileError("full"), files.FileError),
        (FileNotFoundError(2, "No such file", "x"), FileNotFoundError),
        (IsADirectoryError(21, "Is a directory", "x"), OSError),
        (KeyError("x"), RuntimeError),
    ],
)
def test_errors_come_back_by_their_kind_and_text(error, kind):
    with pytest.raises(kind) as raised:
        messages.unpack(messages.pack_error(error))
    assert type(raised.value) is kind
    assert str(raised.value) == str(error)


class Runs:
    def __reduce__(self):
        return (pytest.fail, ("the message was run",))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x00" * 40,
        pickle.dumps((Runs(), None)),
        messages.pack(3)[:-1],
        messages.pack(np.arange(9))[:-1],
        messages._message({"value": {"array": 0}}, []),
        messages._message({"value": {"items": 3}}, []),
        messages._message({"error": "SystemExit", "text": ""}, []),
        messages._message([], []),
    ],
)
def test_what_is_no_message_is_told_and_never_run(message):
    with pytest.raises(ValueError, match="what is no message of pfljax"):
        messages.unpack(message)
