"""Imports cost what is used, and no more."""

import subprocess
import sys

import pytest

import pfljax

HEAVY = ("jax", "flax", "matplotlib", "tensorflow_datasets", "tensorflow")
READS = """
import json, pathlib, tempfile
from pfljax import Experiment
from pfljax.runs import config, folder
path = pathlib.Path(tempfile.mkdtemp())
experiment = Experiment("ditto", dataset="mnist:every=10", rounds=3)
(path / "config.json").write_text(json.dumps(config.to_dict(experiment)))
assert folder.read_config(path) == experiment
"""
PLOTS_AND_SETS = ("matplotlib", "tensorflow_datasets", "tensorflow")
LATER = (
    *("orbax.checkpoint", "flax.nnx", "scipy", "jinja2", "tqdm", "chex", "PIL"),
    *("tensorboardX", "wandb"),
)


@pytest.mark.parametrize(
    ("statement", "without"),
    [
        ("import pfljax.cli.main, pfljax.runs.settings, pfljax.core.factories", HEAVY),
        ("from pfljax import Experiment, run", (*HEAVY, "optax")),
        (READS, HEAVY),
        ("from pfljax.runs.exported import load_params", HEAVY),
        (
            "import pfljax.runs.checkpoint\nfrom pfljax import run, federate, task",
            (*PLOTS_AND_SETS, *LATER),
        ),
        (
            "import pfljax.report, pfljax.cli.listing, pfljax.simulate.compare\n"
            "from pfljax import data; data.load('digits')",
            PLOTS_AND_SETS,
        ),
    ],
)
def test_what_an_import_loads(statement, without):
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not set(without) & set(done.stdout.split())


def test_no_method_starts_a_backend_when_it_is_loaded():
    """A process could not be forked, nor its devices chosen, after that."""
    code = (
        "from pfljax import algorithms; algorithms.methods()\n"
        "from jax._src import xla_bridge; print(xla_bridge.backends_are_initialized())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_every_name_of_the_package_loads():
    for name in pfljax.__all__:
        assert getattr(pfljax, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No pfljax attribute nothing"):
        pfljax.nothing  # noqa: B018
