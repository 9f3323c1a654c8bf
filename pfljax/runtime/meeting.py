"""How the processes of a run meet, know each other, and end if one is lost.

Every process runs the same program with its own devices as part of one mesh.
"""

import hashlib
import hmac
import os
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from pfljax.runtime import aborts, devices, interrupts

TOKEN = "PFLJAX_TOKEN"  # environment variable: a secret that all processes know
# Seconds. JAX waits twice for as long: until it is heard, and until all have come.
COMING = 50
SILENCE = 90  # after which a process is taken for lost
LEAVING = 30  # that a process which ends waits for the others to end
DETECTED = "Slurm, Open MPI, Kubernetes, TPU"
NEVER_MET = (
    "pfljax: the {processes} did not all meet within {seconds} seconds (see above); "
    "start the same command on all of them at once, each with its own --process"
)
LOST = (
    "pfljax: another process of this run was lost; start the same command again on all "
    "of them: it goes on from what is saved"
)
# What collectives say when a peer is gone. Their type is that of any error of XLA.
PEER_GONE = re.compile(r"gloo|nccl|coordination ?service|connection (reset|clos)", re.I)


def address(
    distributed: bool,
    coordinator: str | None,
    processes: int | None,
    process: int | None,
) -> dict[str, Any] | None:
    """The arguments of `connect`; None for a process that is alone.

    Raises:
      ValueError: coordinator, processes and process are half given, or odd.
    """
    arguments = {"coordinator": coordinator, "processes": processes, "process": process}
    missing = [f"--{name}" for name, value in arguments.items() if value is None]
    if 0 < len(missing) < len(arguments):
        raise ValueError(
            "--coordinator HOST:PORT, --processes N and --process I belong together; "
            f"missing: {' '.join(missing)}"
        )
    if not missing:
        _check(**arguments)
    return arguments if distributed or not missing else None


def _check(coordinator: Any, processes: Any, process: Any) -> None:
    for name, value in (("processes", processes), ("process", process)):
        if type(value) is not int:
            raise ValueError(f"--{name} is {value!r}; expected a whole number")
    host, _, port = str(coordinator).rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"--coordinator is {coordinator!r}; expected HOST:PORT")
    if processes >= 2**31:  # JAX would not take it
        raise ValueError(f"--processes is {processes}; expected a number below 2**31")
    if not 0 <= process < processes:
        raise ValueError(
            f"--process is {process} of --processes {processes}; "
            f"expected 0 <= process < {processes}"
        )


def connect(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> None:
    """Joins the processes of this run; comes before anything else that uses JAX.

    Without arguments, JAX asks the cluster (Slurm, Open MPI, Kubernetes, TPU).
    `coordinator` is HOST:PORT of process 0. From now on the program ends with a line
    where another process is lost.

    Raises:
      ValueError: no cluster is found and nothing is given, an argument is missing or
        odd, or the processes have different values of PFLJAX_TOKEN.
    """
    address(False, coordinator, processes, process)  # JAX would wait, or abort
    devices.prepare()
    # JAX would catch SIGTERM to save; a run is safe against a kill, so it may end.
    jax.config.update("jax_enable_preemption_service", False)
    if process == 0:
        others = f"{processes} processes at {coordinator}"
        print(f"pfljax: waiting for all {others}", file=sys.stderr, flush=True)
    who = f"{processes or ''} processes".strip()
    # JAX's own threads tell of a lost process by an abort, and so does a meeting that
    # fails: it holds Python's lock, so that no thread of ours could speak.
    aborts.tell(NEVER_MET.format(processes=who, seconds=2 * COMING))
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            initialization_timeout=COMING,
            heartbeat_timeout_seconds=SILENCE,
            shutdown_timeout_seconds=LEAVING,
        )
    except ValueError as error:
        if coordinator is not None:
            raise
        raise ValueError(
            f"--distributed: no cluster was found ({DETECTED}); give --coordinator "
            "HOST:PORT --processes N --process I"
        ) from error
    aborts.tell(LOST)
    with ending_together():
        _check_token()


def _check_token() -> None:
    """Raises on every process unless all of them have the same token.

    Each shows that it knows it, for numbers that are drawn anew: who only listens, or
    repeats what another said, does not.
    """
    from jax.experimental.multihost_utils import process_allgather

    challenge = np.frombuffer(secrets.token_bytes(32), np.uint8)
    challenges = np.asarray(process_allgather(challenge)).tobytes()
    count = jax.process_count()
    proofs = [_proof(challenges, process) for process in range(count)]
    proof = np.frombuffer(proofs[jax.process_index()], np.uint8)
    received = np.asarray(process_allgather(proof)).reshape(count, -1)
    pairs = zip(proofs, received, strict=True)
    if not all(hmac.compare_digest(ours, row.tobytes()) for ours, row in pairs):
        raise ValueError(
            f"the processes of this run have different values of {TOKEN}, or some have "
            "none; give all of them the same"
        )


def _proof(challenges: bytes, process: int) -> bytes:
    """That this process knows the token, in 32 bytes; without one, of the empty."""
    token = os.environ.get(TOKEN, "").encode(errors="surrogateescape")
    said = challenges + str(process).encode()
    return hmac.digest(token, said, hashlib.sha256)


@contextmanager
def ending_together() -> Iterator[None]:
    """Around a run: where another process is lost, ends this one with a line."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if not jax.distributed.is_initialized() or not PEER_GONE.search(str(error)):
            raise
        # At once: at exit JAX would wait for the one that is gone.
        interrupts.end(LOST, 2)
