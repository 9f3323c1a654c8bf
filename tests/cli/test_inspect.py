"""`pfljax inspect`."""

import numpy as np
import pytest

import tiny


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.npz"
    users = np.repeat(["ann", "ben", "cid"], [10, 20, 30])
    domain = np.repeat(["photo", "art", "photo"], [10, 20, 30])
    x = np.arange(240).reshape(60, 4).astype(np.uint8)
    np.savez(path, x=x, y=np.arange(60) % 2, client=users, domain=domain)
    return f"npz:path={path}"


def test_it_prints_the_data_and_their_own_clients_and_draws_them(file, tmp_path):
    out = tmp_path / "drawn" / "clients.png"
    options = ["--unseen", "domain=art", "--out", out]
    code, text, errors = tiny.main("inspect", file, *options)
    assert code == 0, errors
    for line in (
        "x uint8[60, 4], from 0 to 239",
        "models see x / 255 (models of tokens: x)",
        "classes 2, with examples: 0 30, 1 30",
        "official split train 60",
        "natural clients 3, with examples: ann 10, ben 20, cid 30",
        "domain 2, with examples: art 20, photo 40",
        "example 4 class 0 of client ann, x = [16, 17, 18, 19]",
        "clients that train 2, with examples: 28 train (7 to 21 each), 4 validation (1",
        "clients held out 1, with examples: 14 train",
    ):
        assert line in " ".join(text.split())
    assert len(text.splitlines()) < 24
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("kind", "y", "lines"),
    [
        ("regression", np.arange(20) / 2, ("float32[20, 1], from 0 to 9.5", "[1.5]")),
        ("tokens", np.arange(40).reshape(20, 2), ("from 0 to 39", "target [6, 7]")),
    ],
)
def test_targets_of_other_tasks(kind, y, lines, tmp_path):
    np.savez(tmp_path / "mine.npz", x=np.ones((20, 3)), y=y)
    options = ["--task", kind, "--partition", "iid", "--clients", 2]
    out = ["--out", tmp_path / "drawn.png"]
    path = f"npz:path={tmp_path / 'mine.npz'}"
    code, text, errors = tiny.main("inspect", path, *options, *out)
    assert code == 0, errors
    assert all(line in text for line in lines)
    assert "class" not in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["digitz"], "did you mean 'digits'"),
        (["npz:path=none.npz"], "no file 'none.npz'"),
        (["digits", "--test", "2"], "test is 2.0"),
        (["digits", "--unseen", "ann"], "unknown client 'ann'"),
        (["digits", "--out", "drawn.gif"], "--out is '.gif'"),
        (["digits", "--rounds", "3"], "options: --rounds"),
    ],
)
def test_what_is_wrong_has_one_line(args, message):
    code, _, errors = tiny.main("inspect", *args)
    assert (code, errors.count("\n")) == (2, 1)
    assert message in errors
