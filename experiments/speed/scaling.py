"""The time of a round by the number of devices, and the bytes that a round exchanges.

    python experiments/speed/scaling.py

The work is similar to W1 of `pfljax bench`: TwoNN (199,210 numbers), 480 examples for
each client, batches of 10 and one epoch, so 48 steps for each client. Strong scaling
has a cohort of 8 on 1, 2, 4 and 8 devices, and weak scaling has 4 clients for each
device. Every count runs in a separate process, whose CPU makes that many devices. The
script prints the seconds of a round (the fastest of three calls of three rounds), their
ratio to one device, and the bytes that a device puts into the exchanges of a round,
from the compiled program. Then it prints a projection to accelerators.

The table was measured on two CPU cores, so 4 and 8 devices show the cost of sharing and
no gain in speed. (On one device the products use both cores.) It has the seconds of a
round and the ratio to one device:
    devices  FedAvg strong, weak      Ditto strong, weak       Ditto pinned
    1        0.174 1.00, 0.051 1.00  0.294 1.00, 0.169 1.00
    2        0.063 0.36, 0.067 1.31  0.136 0.46, 0.175 1.04  0.178 0.61, 0.143 0.85
    4        0.047 0.27, 0.130 2.55  0.143 0.49, 0.452 2.67  0.136 0.46, 0.289 1.71
    8        0.059 0.34, 0.257 5.04  0.211 0.72, 0.753 4.45  0.151 0.51, 0.640 3.79

All methods reduce 796,852 bytes in one all-reduce, for any cohort and number of
devices. Ditto's clients keep 796,840 bytes. It moves twice the cohort's states at each
device: with a cohort of 8, 12.7 MB into the all-to-all, and as much out of the
all-gather. With --pin-clients it needs only the all-reduce.

The projection is not a measurement. It is
    t = most steps of a device * step + 2 (D - 1) / D * bytes / bandwidth
        + latency * log2(D)
for a cohort of 4,096 with 240 steps each. A step is assumed to move its client's
weights four times through memory at 3.35 TB/s (NVIDIA H100 SXM data sheet; TPU v5p:
2,765 GB/s, Google Cloud's page on v5p) and to do nothing else, which is a lower bound.
Bandwidths are those of a device in one direction: NVLink 4, 900 GB/s in both (NVIDIA
H100 data sheet), within 8 GPUs; InfiniBand NDR, 400 Gb/s (NVIDIA ConnectX-7); ICI of
TPU v5p, 4,800 Gb/s for a chip (Google Cloud). The latency is assumed. These are the
milliseconds on 8, 64 and 512 devices:
    client state       none                796,840 bytes      the same, pinned
    NVLink 4           117                 142                124
    InfiniBand NDR     117, 14.7, 1.95     345, 272, 263      124, 19.2, 4.22
    ICI of TPU v5p     142, 17.7, 2.23     161, 39.1, 24.0    151, 23.2, 4.98

So without pinned clients a round is limited by the exchange of states, which does not
shrink with the number of devices. With pinned clients a round waits for the device with
the largest part of the cohort, which is on average 6, 31 and 124 % more than an equal
share.
"""

import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.shared import script

# The second keeps a model for each client; the third pins clients to devices.
METHODS = "fedavg", "ditto", "ditto pinned"
STRONG = 8  # clients of all devices
WEAK = 4  # clients of each device
ROUNDS = 3
EXCHANGE = re.compile(r"= (\(.*?\)|\S+) (all-[a-z]+(?:-[a-z]+)*?)(?:-start)?\(")
ARRAY = re.compile(r"([a-z]+)(\d+)\[([\d,]*)\]")


class Link(NamedTuple):
    """What devices are joined by."""

    bandwidth: float  # bytes a second, in one direction
    latency: float  # seconds, assumed
    memory: float  # bytes a second of the device's memory


LINKS = {
    "NVLink 4, H100": Link(450e9, 5e-6, 3.35e12),
    "InfiniBand NDR, H100": Link(50e9, 10e-6, 3.35e12),
    "ICI, TPU v5p": Link(600e9, 2e-6, 2.765e12),
}


def measure(devices: int, cohort: int, method: str) -> dict[str, Any]:
    """Seconds a round and the bytes of its exchanges, in a process of its own."""
    import jax

    jax.config.update("jax_num_cpu_devices", devices)
    from pfljax import engine
    from pfljax.bench.catalogue import WORKLOADS
    from pfljax.bench.workloads import make_data, make_setting, make_tasks
    from pfljax.engine import mesh, placement
    from pfljax.simulate import first_state

    work = WORKLOADS["W1"]._replace(cohort=cohort, epochs=1)
    method, _, pinned = method.partition(" ")
    task, *_ = make_tasks(work)
    train = make_data(work)
    grid = mesh.make(devices, bool(pinned)) if devices > 1 else None
    setting = make_setting(work, method)._replace(mesh=grid)
    if grid is not None and grid.pin_clients:
        owner = placement.owners(devices, np.zeros(work.clients))
        train = placement.place(grid, {"train": train}, owner)["train"]
    else:
        train = mesh.place(grid, train)
    state = first_state.make_init(setting, task, work.clients)(jax.random.key(0))
    count = mesh.place(grid, jax.numpy.int32(ROUNDS))
    rounds = engine.compile_rounds(setting, ROUNDS)
    program = rounds.lower(state, train, count).compile()
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        state, _ = jax.block_until_ready(program(state, train, count))
        seconds.append(time.perf_counter() - start)
    return {
        "seconds": min(seconds[1:]) / ROUNDS,
        "exchanged": exchanged(program.as_text(), devices),
    }


def exchanged(text: str, devices: int) -> dict[str, int]:
    """Bytes that one device puts into each kind of exchange of a compiled program."""
    sent: dict[str, int] = {}
    for shapes, kind in EXCHANGE.findall(text):
        nbytes = 0
        for _, bits, dims in ARRAY.findall(shapes):
            sizes = map(int, filter(None, dims.split(",")))
            nbytes += math.prod(sizes) * int(bits) // 8
        # The result of an all-gather has the parts of all devices.
        parts = devices if kind == "all-gather" else 1
        sent[kind] = sent.get(kind, 0) + nbytes // parts
    return sent


def measured(devices: int, cohort: int, method: str) -> dict[str, Any]:
    """`measure` in a process that starts with this many devices."""
    command = [sys.executable, __file__, str(devices), str(cohort), method]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root)
    return json.loads(done.stdout)


def show() -> None:
    """Prints the measurements."""
    base: dict[tuple[str, str], float] = {}  # nobody is pinned on one device
    for method in METHODS:
        for kind in ("strong", "weak"):
            print(f"\n{method}, {kind}\ndevices cohort  s/round  ratio  exchanged")
            case = method.partition(" ")[0], kind
            for devices in (1, 2, 4, 8):
                cohort = STRONG if kind == "strong" else WEAK * devices
                result = measured(devices, cohort, method)
                seconds = result["seconds"]
                ratio = seconds / base.setdefault(case, seconds)
                sent = [f"{k} {v:,} B" for k, v in result["exchanged"].items()]
                line = f"{devices:7} {cohort:6} {seconds:8.3f} {ratio:6.2f}"
                print(f"{line}  {', '.join(sent) or 'nothing'}", flush=True)


def projected(link: Link, devices: int, kept: int = 0, pinned: bool = False) -> float:
    """Seconds a round of 4,096 clients; each keeps a state of `kept` bytes."""
    cohort = 4096
    steps = 240
    model = 199_210 * 4  # bytes
    most = cohort / devices
    if pinned:
        # The device with the most of a uniform cohort, on average; it keeps its
        # clients' states, so that none is sent.
        placement = np.full(devices, 1 / devices)
        drawn = np.random.default_rng(0).multinomial(cohort, placement, size=1000)
        most = drawn.max(1).mean()
        kept = 0
    train = most * steps * (4 * model / link.memory)
    share = (devices - 1) / devices
    reduce = 2 * share * model / link.bandwidth
    slots = devices * math.ceil(2 * cohort / devices)
    # To whoever trains them and back: each device gets the states of all slots.
    states = 2 * share * slots * kept / link.bandwidth
    return train + reduce + states + link.latency * math.log2(devices)


def project() -> None:
    """Prints the projection, in milliseconds."""
    print("\nprojection, no measurement: ms a round, cohort 4,096, 240 steps a client")
    for kept, pinned in (0, False), (199_210 * 4, False), (199_210 * 4, True):
        print(f"client state of {kept:,} bytes{', pinned' * pinned}")
        for name, link in LINKS.items():
            sizes = (8,) if name.startswith("NVLink") else (8, 64, 512)
            times = [
                f"{n}: {1e3 * projected(link, n, kept, pinned):.2f}" for n in sizes
            ]
            print(f"  {name:21} {', '.join(times)}")


def main() -> None:
    """Measures rounds by the number of devices, and projects them to accelerators."""
    show()
    project()


if __name__ == "__main__":
    if len(sys.argv) == 4:  # started by `show`
        devices, cohort, method = sys.argv[1:]
        print(json.dumps(measure(int(devices), int(cohort), method)))
    else:
        script.run(main)
