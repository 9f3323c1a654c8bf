"""Broken methods of one's own, and variables of the environment with nonsense."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from abuse import data_files
from abuse.values import BASE, Input, flags

IMPORTS = (
    "import jax, jax.numpy as jnp\nfrom pfljax.algorithms.fedavg import fedavg\n"
    "from pfljax.algorithms.multi_task.ditto import ditto\n"
)
RUN = ("run", *flags(BASE), "--out={T}/r")
# What follows IMPORTS in the file mym.py; which has a sound method.
FILES = {
    "empty": "",
    "a syntax error": "def mym(task, local:\n",
    "an indent": "def mym(task, local):\nreturn 3\n",
    "bytes": "\udcff\udcfe",
    "no factory": "def other(task, local):\n    return fedavg(task, local)\n",
    "a number": "mym = 3\n",
    "a class": "class mym:\n    pass\n",
    "an exit": "import sys\nsys.exit(3)\n",
    "an error": "1 / 0\n",
    "itself": "from pfljax.algorithms.mym import mym\n",
    "one argument": "def mym(task):\n    return fedavg(task, None)\n",
    "a positional option": "def mym(task, local, lam=1.0):\n    return 3\n",
    "a list option": "def mym(task, local, *, lam=[1]):\n    return 3\n",
    "no return": "def mym(task, local):\n    fedavg(task, local)\n",
    "a tuple": "def mym(task, local):\n    return 1, 2\n",
    "an error inside": "def mym(task, local):\n    return task.nothing\n",
    "a warning": "def mym(task, local):\n    raise DeprecationWarning\n",
    "an interrupt": "def mym(task, local):\n    raise KeyboardInterrupt\n",
    "an exit inside": "def mym(task, local):\n    raise SystemExit(0)\n",
    "a recursion": "def mym(task, local):\n    return mym(task, local)\n",
}
# Functions of the method by what they answer, whatever they are given.
ANSWERS = {
    "None": "None",
    "3": "3",
    "text": "'x'",
    "()": "()",
    "an object": "object()",
    "an array": "jnp.zeros((3, 5))",
    "a random shape": "jnp.zeros(__import__('random').randrange(1, 9))",
    "complex": "jnp.zeros(3, complex)",
    "a generator": "(i for i in range(3))",
}
BROKEN = """
def mym(task, local):
    def broken(*args):
        return {answer}
    return ditto(task, local)._replace({role}=broken)
"""
VARIABLES = {  # real processes: seconds each
    "JAX_PLATFORMS": ("x", "tpu", "cpu,x", ","),
    "XLA_FLAGS": ("x", "--x", "--xla_force_host_platform_device_count=x"),
    "JAX_NUM_CPU_DEVICES": ("x", "0", "-2", "1.5"),
    "JAX_ENABLE_X64": ("x",),
    "JAX_COMPILATION_CACHE_DIR": ("{T}/file",),
}
UNUSED = "it is only told, and the run goes on without"
MAY = {
    ("JAX_COMPILATION_CACHE_DIR", "{T}/file"): UNUSED,
}


def table() -> Iterator[Input]:
    """All of them."""
    for name, text in FILES.items():
        yield _method(name, IMPORTS + text)
    for role in _roles():
        for name, answer in ANSWERS.items():
            text = BROKEN.format(role=role, answer=answer)
            yield _method(f"{role} of {name}", IMPORTS + text)
    for value in ("{T}/nowhere", "{T}/file", "/dev/null", "{T}/m:{T}/nowhere", "x"):
        yield _environment("PFLJAX_METHODS", value, RUN, "PFLJAX_METHODS")
    npz = (*RUN, "--dataset=npz:path={T}/d.npz", "--partition=iid")
    for value in ("x", "FULL", "1", " "):
        yield _environment("PFLJAX_CHECKSUM", value, npz, "PFLJAX_CHECKSUM")
    mnist = (*RUN, "--dataset=mnist")
    raw = ("prepare", "mnist", "--raw={T}/raw")
    for value in ("{T}/file", "/proc/x", "/dev/null", "{T}/loop", "\udcff"):
        for line in (mnist, raw):
            yield _environment("PFLJAX_DATA_DIR", value, line, "")
    for variable, values in VARIABLES.items():
        for value in values:
            may = MAY.get((variable, value), "")
            yield _environment(variable, value, RUN, variable, may)


def _roles() -> list[str]:
    """The functions of a method that a run asks; `endpoints` are for landscapes."""
    from pfljax.simulate import methods

    return [role for role in methods.PARAMETERS if role != "endpoints"]


def _method(name: str, text: str) -> Input:
    """A run of the method that a file with this text is to have."""

    def make(place: Path) -> None:
        (place / "m").mkdir()
        code = text.encode(errors="surrogateescape")
        (place / "m" / "mym.py").write_bytes(code)

    env = (("PFLJAX_METHODS", "{T}/m"),)
    # Some clients are newcomers: there is a function for them.
    args = (*RUN, "--algorithm=mym", "--unseen=0.3")
    return Input(
        f"a method: {name}", args, names=("mym",), make=make, env=env, whole=True
    )


def _environment(
    variable: str, value: str, args: tuple[str, ...], answer: str, may: str = ""
) -> Input:
    def make(place: Path) -> None:
        (place / "m").mkdir()
        (place / "file").write_text("hello\n")
        (place / "loop").symlink_to(place / "loop")
        (place / "d.npz").write_bytes(data_files.good_npz())
        data_files.surround("raw", place)

    name = f"{variable}={value!a} {shlex.join(args[:1])}"
    if "mnist" in args[-1]:
        name += " mnist"
    names = (answer,) if answer else ()
    env = ((variable, value),)
    return Input(name, args, names=names, may=may, make=make, env=env, whole=True)
