"""Wrong inputs to the commands that look at results, go on with them, or time them.

Made of small lists: of places where no run is, of numbers, of names. {R} is the folder
of a finished run, which no command may change.
"""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from abuse import bases
from abuse.values import BASE, Input, flags

R = "{T}/good"
RUN = " ".join(shlex.quote(word) for word in ("run", *flags(BASE), "--out={T}/r"))
# Folders and files that are no finished run; see `places`.
PLACES = ("nowhere", "file", "pipe", "empty", "foreign", "loop", "folders/sweep")
GOING_ON = "it goes on from its checkpoint"
READ = "the models of its newest checkpoint"
AT = {  # commands of a folder, and what of a cut run may be: goes on, is read, or not
    "resume {P}": GOING_ON,
    "report {P} --out {T}/o": READ,
    "report {R} {P} --out {T}/o": READ,
    "export {P}": READ,
    "export {P} --client 1": READ,
    "landscape {P} --points 3": READ,
    "landscape {R} --points 3 --other {P}": READ,
}
# Where a folder is to be made, or a file.
INTO = {
    "report {R} --out {P}": "a folder that had other files",
    "export {R} --out {P}": "a file, which is written anew",
    f"{RUN.replace('{T}/r', '{P}')}": "a folder that had other files",
    "sweep --rounds 1 --epochs 1 --over lr 0.1 --out {P}": "a folder of other files",
}
TARGETS = ("file", "file/below", "pipe", "loop", "foreign")
NUMBERS = ("nan", "-1", "9223372036854775808", "x", "1.5", "", "inf")
OF_NUMBERS = {  # the last word is that of the answer
    "resume {T}/cut --rounds={V}": "rounds",
    "export {R} --client={V}": "client",
    "landscape {R} --points={V}": "points",
    "landscape {R} --kind plane --points={V}": "points",
    "landscape {R} --points 3 --tolerance={V}": "tolerance|endpoints",
    "bench W1 --rounds={V} --out {T}/b": "rounds",
    "bench W1 --repeats={V} --out {T}/b": "repeats",
    "bench plane --rounds={V} --out {T}/b": "",
    "sweep --rounds 1 --epochs 1 --out {T}/s --over batch_size {V}": "batch_size",
    f"{RUN} --processes={{V}} --process=0 --coordinator=localhost:9": "process",
    f"{RUN} --processes=2 --process={{V}} --coordinator=localhost:9": "process",
}
SWEEP = "sweep --rounds 1 --epochs 1 --out {T}/s"
NAMES = {  # commands with names that are none, or stand there twice
    "landscape {R} --kind=": "kind",
    "landscape {R} --kind=x": "kind",
    "landscape {R} --kind=LINE": "kind",
    "landscape {R} --kind=line:points=3": "kind",
    "landscape {R} --kind=curvature --points=3": "points",
    "landscape {R} --kind=plane --tolerance=0.1": "tolerance",
    "landscape {R} --points=3 --other={R}": "other",
    "landscape {R} --points=4": "points",
    "bench W9": "W9",
    "bench ''": "workload",
    "bench W1 --algorithm x --out {T}/b": "x",
    "bench W1 plane --out {T}/b": "",
    "bench W1 --against '' --out {T}/b": "against",
    'bench W1 --against "\'" --out {T}/b': "against",
    "bench W1 W2 --against true --out {T}/b": "against",
    "bench W1 --against {T}/nowhere --rounds 1 --repeats 1 --out {T}/b": "nowhere",
    "bench W1 --against false --rounds 1 --repeats 1 --out {T}/b": "false",
    "conformance": "method",
    "conformance x": "x",
    "conformance ''": "name",
    "conformance ditto:lam=x": "lam",
    "conformance ditto:x=1": "x",
    "conformance ditto --bytes 1": "bytes",
    "conformance ditto --bytes x 3": "bytes",
    "conformance ditto --bytes 1.5 3": "bytes",
    "list": "kind",
    "list x": "x",
    "list ''": "kind",
    "list algorithms models": "models",
    "report": "run",
    "report {R} {R} --out {T}/o": "good",
    "export": "path",
    "resume": "path",
    "landscape": "path",
    "resume {R} --rounds 2": "rounds",
    "resume {T}/cut --lr 0.1": "lr",
    "prepare": "str",
    "prepare x": "x",
    "prepare ''": "data set",
    "prepare mnist --raw {T}/nowhere": "nowhere",
    "prepare mnist --raw {T}/file": "file",
    f"{SWEEP}": "over",
    f"{SWEEP} --over": "over",
    f"{SWEEP} --over lr": "lr",
    f"{SWEEP} --over x 1": "x",
    f"{SWEEP} --over lr 0.1 0.1": "lr",
    f"{SWEEP} --over lr 0.1 --over lr 0.2": "lr",
    f"{SWEEP} --over out a b": "out",
    f"{SWEEP} --over label a b": "label",
    f"{SWEEP} --over algorithm x": "x",
    f"{SWEEP} --over mu 0.1": "mu",
    "sweep --out {T}/s --config {T}/nowhere --over lr 0.1": "nowhere",
    "sweep --out {T}/s --config {T}/file --over lr 0.1": "file",
    "x": "x",
}
CUT = f"{bases.COMMANDS['run']} --out {{T}}/cut"
# The same run once more with one setting that is another, in the folder of a cut run.
OTHERWISE = {
    "--lr 0.3": "lr",
    "--seed 3": "seed",
    "--algorithm ditto": "algorithm",
    "--model logistic": "model",
    "--clients 7": "clients",
    "--cohort 2": "cohort",
    "--partition iid": "partition",
    "--batch-size 3": "batch_size",
    "--epochs 2": "epochs",
    "--momentum 0.5": "momentum",
    "--rounds 2": "rounds",
    "--dataset synthetic": "dataset",
    "--test 0.3": "test",
    "--selection all": "selection",
    "--finetune 2": "finetune",
    "--optimizer adam": "optimizer",
}
IN_FOLDERS = {
    f"{CUT.replace('{T}/cut', '{T}/folders/sweep')}": "sweep",
    f"{bases.COMMANDS['sweep']} --out {{T}}/cut": "cut",
    f"{bases.COMMANDS['sweep']} --lr 0.3 --out {{T}}/folders/sweep": "sweep",
}


def table() -> Iterator[Input]:
    """All of them."""
    for line, may in AT.items():
        for place in PLACES:
            name = Path(place).name
            known = "sweep" in place and line.startswith("report {P}")
            yield _input(line.replace("{P}", f"{{T}}/{place}"), name, READ * known)
        yield _input(line.replace("{P}", "{T}/cut"), "cut", may)
        yield _input(line.replace("{P}", "''"), "", "")
    for line, may in INTO.items():
        for place in TARGETS:
            other = may if place == "foreign" and "export" not in line else ""
            answer = place.partition("/")[0]
            replaced = line.startswith("export") and place in ("file", "loop")
            known = may if replaced else other
            yield _input(line.replace("{P}", f"{{T}}/{place}"), answer, known)
    for line, answer in OF_NUMBERS.items():
        for value in NUMBERS:
            given = line.replace("{V}", shlex.quote(value))
            yield _input(given, answer)
    for line, answer in (NAMES | IN_FOLDERS).items():
        yield _input(line, answer)
    for setting, answer in OTHERWISE.items():
        yield _input(f"{CUT} {setting}", answer)


def _input(line: str, answer: str, may: str = "") -> Input:
    words = tuple(shlex.split(line.replace("{R}", R)))
    names: tuple[str, ...] = ()
    for word in filter(None, answer.split("|")):
        names += (word, word.replace("_", "-"), word.upper())
    name = line.replace(RUN, "run").replace(bases.ROUNDS, "...")
    return Input(f"results {name!a}", words, names=names, may=may, make=places)


def places(place: Path) -> None:
    """What the commands find: a run, one that was cut, and what is none."""
    (place / "good").symlink_to(bases.finished("run"))
    bases.copied("run", place / "cut", cut=True)
    (place / "folders").mkdir()
    bases.copied("sweep", place / "folders" / "sweep")
    (place / "file").write_text("hello\n")
    os.mkfifo(place / "pipe")
    (place / "empty").mkdir()
    (place / "foreign").mkdir()
    (place / "foreign" / "a.txt").write_text("hello\n")
    (place / "loop").symlink_to(place / "loop")
