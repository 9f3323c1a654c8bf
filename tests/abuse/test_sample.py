"""A small sample of `make abuse`: every program runs, and finds no fault."""

import os
import subprocess
import sys
import tempfile

import pytest

from abuse import answers, folders, inputs, jobs, kills

# Program and the share of its trials: a few of each.
SAMPLE = {
    ("kills", "save", "disk", "import"): "0.02",
    ("inputs",): "0.02",
    ("flips", "device", "disk"): "0.06",
    ("folders", "disk: clients/slots.bin: cut", "disk: config.json: a pipe"): "1",
    ("processes", "3"): "1",
    ("limits", "disk", "file size", "read-only"): "0.04",
}


@pytest.fixture(scope="module")
def env():
    # Not below pytest's folder: its long path would be the longest of the inputs.
    with tempfile.TemporaryDirectory(prefix="pfljax-abuse-") as folder:
        yield os.environ | {
            "ABUSE_FOLDER": folder,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }


@pytest.mark.slow
@pytest.mark.parametrize("program", SAMPLE, ids=lambda program: program[0])
def test_a_sample_finds_no_fault(env, program):
    name, *words = program
    done = subprocess.run(
        [sys.executable, "-m", f"abuse.{name}", *words],
        env=env | {"ABUSE_SCALE": SAMPLE[program]},
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_full_run_has_a_thousand_kills_and_1500_inputs():
    assert sum(kind.kills for kind in kills.KINDS.values()) >= 1000
    given = list(inputs.chosen())
    assert len(given) >= 1500
    names = [wrong.name for _, wrong in given]
    assert len(set(names)) == len(names)


def test_files_have_the_same_names_whatever_orbax_draws(tmp_path):
    names = []
    for drawn in (("a1", "b2"), ("f0", "c3")):
        found = tmp_path / drawn[0]
        (found / "checkpoints" / "3" / "d").mkdir(parents=True)
        (found / "config.json").write_text("{}")
        for name, text in zip(drawn, ("longer", "short"), strict=True):
            (found / "checkpoints" / "3" / "d" / name).write_text(text)
        base = folders.Base("disk", jobs.JOBS["disk"], found, found, found, found)
        named = folders.files(base)
        assert (found / named["checkpoints/3/d/0"]).read_text() == "short"
        names.append(list(named))
    assert names[0] == names[1]


@pytest.mark.parametrize(
    ("code", "said", "kind"),
    [
        (2, "pfljax: lr is nan; expected a positive number", "good"),
        (2, "pfljax: something is wrong", "unclear"),
        (2, "pfljax: lr: cannot convert float NaN to integer", "unclear"),
        (2, "lr is nan", "unclear"),
        (1, "Traceback (most recent call last):\n  x\nKeyError: 'lr'", "traceback"),
        (-6, "terminate called", "traceback"),
        (0, "lr: fedavg: accuracy 0.5", "silent"),
        (None, "lr", "hang"),
    ],
)
def test_the_class_of_an_answer(code, said, kind):
    assert answers.classify(code, said, ("lr",), "").kind == kind


def test_what_may_be_accepted_is_harmless():
    assert answers.classify(0, "", ("lr",), "a number").kind == "harmless"
