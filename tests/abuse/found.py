"""Commands that were once answered badly, each by the name under which it was found.

Here are the 145 of 228 that are commands: 36 of settings and options (`SETTINGS`,
`OTHERS`), 7 of methods of one's own, 61 of folders of runs and sweeps (found_folders)
and 41 of files of data (found_data). The 83 others are calls in Python, of which the
table `python_calls` has the same kinds: 40 of arrays and federations, 31 of runs,
comparisons, sweeps and models. 6 of federations by hand, 4 of runs that go on with
other data and 2 of exported files are tests of tests/data and tests/simulate.
"""

import shlex
from collections.abc import Iterator

from abuse import found_data, found_folders
from abuse.values import Input

TINY = "run --rounds 2 --eval-every 2 --out {T}/r"
# Behind TINY; the last word is one that the answer names.
SETTINGS = {
    "lr-1e-320": "--epochs 1 --lr 1e-320 lr",
    "steps-big": "--epochs None --steps 99999999999 steps",
    "steps-wrap": "--epochs None --steps 4294967297 steps",
    "steps-wrap0": "--epochs None --steps 4294967296 steps",
    "optimizer-b1": "--epochs 1 --optimizer adam:b1=2 b1",
    "optimizer-dup": "--epochs 1 --optimizer adam:b1=0.9,b1=0.8 b1",
    "optimizer-eps": "--epochs 1 --optimizer adam:eps=-1 eps",
    "partition-dup": "--epochs 1 --partition shards:per_client=2,per_client=3 client",
    "partition-s1000": "--epochs 1 --partition quantity_lognormal:sigma=1000 sigma",
    "partition-s1e308": "--epochs 1 --partition quantity_lognormal:sigma=1e308 sigma",
    "dataset-ss": "--epochs 1 --dataset synthetic:seed=-1 seed",
    "label-surr": "--epochs 1 --label \ud800 label",
    "batch-size-99999999999": "--epochs 1 --batch-size 99999999999 batch_size",
    "batch-size-10**21": "--epochs 1 --batch-size 999999999999999999999 batch_size",
    "batch-wrap": "--epochs 1 --batch-size 4294967306 batch_size",
    "batch-2e31": "--epochs 1 --batch-size 2147483648 batch_size",
    "stragglers-inf": "--epochs 1 --stragglers inf stragglers",
    "stragglers-nan": "--epochs 1 --stragglers nan stragglers",
    "epochs-big": "--epochs 99999999999 epochs",
    "epochs-wrap": "--epochs 4294967297 epochs",
    "model-huge": "--epochs 1 --model mlp:hidden=(99999999999,) model",
    "model-oom": "--epochs 1 --model mlp:hidden=(10000000,10000000) model",
    "model-unhash": "--epochs 1 --model mlp:hidden={[1]:2} option",
    "oom40g": "--epochs 1 --model mlp:hidden=(100000,100000) model",
    "finetune-wrap": "--epochs 1 --algorithm fedavg:finetune=4294967297 finetune",
    "finetune-2e31": "--epochs 1 --algorithm fedavg:finetune=2147483648 finetune",
    "personal-wrap": "--epochs 1 --algorithm ditto:personal_epochs=4294967297 person",
    "headepochs-wrap": "--epochs 1 --algorithm fedrep:head_epochs=4294967297 head",
    "inner-wrap": "--epochs 1 --algorithm pfedme:inner_steps=4294967297 inner",
}
# Whole commands.
OTHERS = {
    "bench-public-rounds-0": "bench --public --rounds 0 --out {T}/b rounds",
    "bench-public-repeats-0": "bench --public --repeats 0 --out {T}/b repeats",
    "bench-out-proc": "bench W1 --out /proc/x /proc",
    "bench-against-0": "bench W1 --against "
    """'echo "JSON {\\"client_steps_per_s\\": 0}"' --rounds 1 """
    "--repeats 1 --out {T}/b peer",
    "prep-mnist:1.0.0": "prepare mnist:1.0.0 mnist",
    "sweep-batch-size": "sweep --rounds 6 --eval-every 2 --epochs 1 --out {T}/s "
    "--over batch_size 99999999999 batch_size",
    "sweep-lr-unhash": "sweep --rounds 6 --eval-every 2 --epochs 1 --out {T}/s "
    "--over lr {[1]:2} option",
}
METHOD = "from pfljax.algorithms.fedavg import fedavg\n"
# What a file of one's own has; of fedavg, too, which is a name of pfljax.
METHODS = {
    "methods-shadow": ("fedavg", METHOD),
    "methods-syntax": ("mym", "def mym(:\n"),
    "methods-raise": ("mym", "raise KeyError('boom')\n"),
    "methods-import": ("mym", "import nonexistent_module\n"),
    "methods-wrongsig": ("mym", "def mym():\n    return 3\n"),
    "methods-ret3": ("mym", "def mym(task, local):\n    return 3\n"),
    "methods-fnraise": (
        "mym",
        "def mym(task, local):\n    raise IndexError('boom')\n",
    ),
}


def table() -> Iterator[Input]:
    """All of them."""
    for name, line in SETTINGS.items():
        yield of_line(f"found {name}", f"{TINY} {line}")
    for name, line in OTHERS.items():
        yield of_line(f"found {name}", line)
    for name, (file, text) in METHODS.items():
        yield of_method(f"found {name}", file, text)
    yield from found_folders.table()
    yield from found_data.table()


def of_line(name: str, line: str) -> Input:
    """The command before the last word of a line, and that word for the answer."""
    *words, answer = shlex.split(line)
    # As names of settings and of options stand in answers.
    names = (answer, answer.replace("_", "-"))
    return Input(name, tuple(words), names=names)


def of_method(name: str, file: str, text: str) -> Input:
    """A run of the method of one's own that this file is to have."""

    def make(place):
        (place / "m").mkdir()
        (place / "m" / f"{file}.py").write_text(text)

    words = shlex.split(f"{TINY} --epochs 1 --algorithm {file}")
    env = (("PFLJAX_METHODS", "{T}/m"),)
    return Input(name, tuple(words), names=(file,), make=make, env=env)
