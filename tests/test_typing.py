"""The types of pfljax as an editor and a type checker see them in a user's script."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = """
import numpy as np
import pfljax
from pfljax import Experiment, Federation, federate, from_arrays, run
from pfljax.algorithms.multi_task.ditto import ditto

rows = from_arrays(np.zeros((9, 2), np.float32), np.zeros(9, np.int32), name="mine")
mine = federate(rows, "shards", num_clients=3, seed=0)
job = Experiment("ditto:lam=0.5", rounds=3, dataset="mnist:every=10")
reveal_type(pfljax.run)
reveal_type(mine)
reveal_type(job.rounds)
reveal_type(job.replace(seed=1))
result = run(job, mine, quiet=True)
print(result.personal.test.accuracy, result.server.validation.loss, result.best.round)
"""
WRONG = {  # a line, and what is wrong with it
    "run(3)": "reportArgumentType",
    "run(job, quite=True)": "reportCallIssue",
    "run(job, mine, True)": "reportCallIssue",
    "Experiment(round=3)": "reportCallIssue",
    'Experiment(rounds="3")': "reportArgumentType",
    "ditto(lamb=1.0)": "reportCallIssue",
    "result.personal.test.acuracy": "reportAttributeAccessIssue",
    'result["last"]': "reportIndexIssue",
    "job.round": "reportAttributeAccessIssue",
}


@pytest.fixture(scope="module")
def diagnostics(tmp_path_factory):
    """Pyright's findings in the script: (line, kind or None, message) of each."""
    if shutil.which("pyright", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("no pyright")
    file = tmp_path_factory.mktemp("script") / "script.py"
    file.write_text(SCRIPT + "\n".join(WRONG) + "\n")
    settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (file.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    command = ["-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(
        [sys.executable, *command, "-p", str(file.parent)],
        capture_output=True,
        text=True,
    )
    return [
        (one["range"]["start"]["line"], one.get("rule"), one["message"])
        for one in json.loads(done.stdout)["generalDiagnostics"]
    ]


@pytest.mark.slow
def test_the_script_is_right_and_its_types_are_known(diagnostics):
    first = len(SCRIPT.splitlines())
    messages = [message for line, _, message in diagnostics if line < first]
    run, *others = messages
    asked = "callback: ((int, Evaluation, RunState) -> (bool | None)) | None"
    for words in ("experiment: Experiment", "task: Task | None", asked, "-> Result"):
        assert words in run
    types = [message.split(" is ")[1].strip('"') for message in others]
    assert types == ["Federation", "int", "Experiment"]


@pytest.mark.slow
def test_a_wrong_argument_is_an_error(diagnostics):
    first = len(SCRIPT.splitlines())
    for at, rule in enumerate(WRONG.values(), first):
        assert rule in {kind for line, kind, _ in diagnostics if line == at}
