"""Our disk store and three layouts of tensorstore: speed, growth, and kills.

    python experiments/speed/stores.py speed     500 of 100,000 records in a call
    python experiments/speed/stores.py growth    20 calls of 100 of 400 records
    python experiments/speed/stores.py kills     SIGKILL at random moments

experiments/speed/REPORT.md has the figures and the conclusions. `ours` is
`pfljax.engine.disk_store`. The others keep each record under its client and round:
`ocdbt` in tensorstore's transactional B+tree, `files` in a file for each record, and
`zarr3` as a chunk [1, 1, bytes] of an array over the B+tree.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import jax
import numpy as np
import tensorstore as ts
import tyro
from tyro.conf import Positional

from pfljax.engine.disk_store import DiskStore
from pfljax.engine.records import Owner, make_layout

KEEP = 2  # checkpoints
SLOTS = KEEP + 1


class Keyed:
    """Records in a key-value store of tensorstore, under "client/round"."""

    def __init__(self, folder: Path, clients: int, nbytes: int):
        folder.mkdir(parents=True, exist_ok=True)
        self.kv = ts.KvStore.open(self.spec(folder)).result()
        self.nbytes = nbytes
        self.rounds: dict[int, list[int]] = {}  # written, of each client
        for key in sorted(self.kv.list().result()):
            client, round_ = map(int, key.split(b"/"))
            self.rounds.setdefault(client, []).append(round_)

    def spec(self, folder: Path) -> dict:
        """What tensorstore opens."""
        base = {"driver": "file", "path": f"{folder}/"}
        # Weights are noise: its default, zstd, only takes time.
        config = {"compression": None, "max_inline_value_bytes": 0}
        return {"driver": "ocdbt", "base": base, "config": config}

    def restore(self, round_: int) -> None:
        """Forgets what was written after this round."""
        self._delete(
            (client, late)
            for client, written in self.rounds.items()
            for late in [r for r in written if r > round_]
        )

    def write(self, round_: int, ids: np.ndarray, rows: np.ndarray) -> None:
        """One transaction."""
        transaction = ts.Transaction()
        kv = self.kv.with_transaction(transaction)
        for client, row in zip(ids.tolist(), rows, strict=True):
            kv.write(_key(client, round_), row.tobytes()).result()
            self.rounds.setdefault(client, []).append(round_)
        transaction.commit_async().result()

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(records, whether there is one)."""
        rows = np.zeros((len(ids), self.nbytes), np.uint8)
        newest = [self.rounds.get(client, [0])[-1] for client in ids.tolist()]
        waiting = {
            row: self.kv.read(_key(int(ids[row]), round_))
            for row, round_ in enumerate(newest)
            if round_
        }
        for row, future in waiting.items():
            rows[row] = np.frombuffer(future.result().value, np.uint8)
        return rows, np.asarray(newest) > 0

    def save(self, round_: int) -> None:
        """Nothing: a commit is flushed."""

    def keep(self, rounds: list[int]) -> None:
        """Deletes what no checkpoint that stays needs."""
        oldest = min(rounds, default=0)
        self._delete(
            (client, old)
            for client, written in self.rounds.items()
            for old in [r for r in written if r <= oldest][:-1]
        )

    def _delete(self, pairs) -> None:
        transaction = ts.Transaction()
        kv = self.kv.with_transaction(transaction)
        for client, round_ in list(pairs):
            kv.write(_key(client, round_), None).result()
            self.rounds[client].remove(round_)
        self.rounds = {
            client: rounds for client, rounds in self.rounds.items() if rounds
        }
        transaction.commit_async().result()


class Files(Keyed):
    """The same with a file for each record."""

    def spec(self, folder: Path) -> dict:
        """What tensorstore opens."""
        return {"driver": "file", "path": f"{folder}/"}


class Chunks:
    """An array u8[C, S, bytes] over the B+tree; slots by round, for speed only."""

    def __init__(self, folder: Path, clients: int, nbytes: int):
        base: dict = {"driver": "ocdbt", "base": f"file://{folder.resolve()}/"}
        base["config"] = {"compression": None, "max_inline_value_bytes": 0}
        self.array = ts.open(
            {"driver": "zarr3", "kvstore": base},
            create=True,
            open=True,
            dtype=ts.uint8,
            shape=[clients, SLOTS, nbytes],
            chunk_layout=ts.ChunkLayout(chunk_shape=[1, 1, nbytes]),
        ).result()
        self.slot = 0

    def write(self, round_: int, ids: np.ndarray, rows: np.ndarray) -> None:
        """One transaction."""
        self.slot = round_ % SLOTS
        with ts.Transaction() as transaction:
            self.array.with_transaction(transaction)[ids, self.slot] = rows

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records written last."""
        return self.array[ids, self.slot].read().result(), np.ones(len(ids), bool)

    def save(self, round_: int) -> None:
        """Nothing: a commit is flushed."""

    def keep(self, rounds: list[int]) -> None:
        """Nothing: slots are written over."""


def _key(client: int, round_: int) -> str:
    return f"{client:08d}/{round_:08d}"


def ours(folder: Path, clients: int, nbytes: int) -> DiskStore:
    """The store of `--state-storage disk`."""
    folder.mkdir(parents=True, exist_ok=True)
    layout = make_layout(jax.ShapeDtypeStruct((nbytes,), np.uint8))
    return DiskStore(folder, Owner("disk", "abc", clients, layout), KEEP, True)


STORES = {"ours": ours, "ocdbt": Keyed, "files": Files, "zarr3": Chunks}


def used(folder: Path) -> int:
    """Bytes on disk."""
    return sum(f.stat().st_blocks * 512 for f in folder.rglob("*") if f.is_file())


def speed(kind: str, folder: Path) -> None:
    """Milliseconds of a durable write and of a read, cached, of 500 records."""
    for nbytes, calls in ((8_000, 5), (800_000, 5), (3_000_000, 2)):
        store = STORES[kind](folder, 100_000, nbytes)
        rng = np.random.default_rng(0)
        writes, reads = [], []
        for round_ in range(1, calls + 1):
            ids = np.sort(rng.choice(100_000, 500, replace=False))
            rows = rng.integers(0, 256, (500, nbytes), np.uint8)
            start = time.perf_counter()
            store.write(round_, ids, rows)
            store.save(round_)
            written = time.perf_counter()
            got, _ = store.read(ids)
            reads.append(time.perf_counter() - written)
            writes.append(written - start)
            assert (got == rows).all()
        del store
        write, read = (1000 * float(np.median(t)) for t in (writes, reads))
        print(f"{kind:6} {nbytes:9,} bytes: write {write:6.0f} ms, read {read:6.0f} ms")
        shutil.rmtree(folder)


def growth(kind: str, folder: Path) -> None:
    """Megabytes on disk after calls that write the same clients again."""
    store = STORES[kind](folder, 400, 800_000)
    rng = np.random.default_rng(0)
    sizes, seconds = [], []
    for round_ in range(1, 21):
        ids = np.sort(rng.choice(400, 100, replace=False))
        rows = rng.integers(0, 256, (100, 800_000), np.uint8)
        start = time.perf_counter()
        store.write(round_, ids, rows)
        store.save(round_)
        store.keep([r for r in (round_ - 1, round_) if r])
        seconds.append(time.perf_counter() - start)
        sizes.append(used(folder) / 1e6)
    print(
        f"{kind:6} 80 MB a call: {sizes[4]:.0f} MB after 5, {sizes[9]:.0f} after 10, "
        f"{sizes[19]:.0f} after 20; {1000 * np.median(seconds):.0f} ms a call"
    )


CLIENTS, COHORT, NBYTES = 60, 20, 100_000  # of the kills


def cohort(round_: int) -> tuple[np.ndarray, np.ndarray]:
    """Who writes what in a round."""
    rng = np.random.default_rng(round_)
    ids = np.sort(rng.choice(CLIENTS, COHORT, replace=False))
    return ids, rng.integers(0, 256, (COHORT, NBYTES), np.uint8)


def child(kind: str, folder: Path) -> None:
    """Goes on from the last checkpoint for ever; every second round is one."""
    done = _saved(folder)
    store = STORES[kind](folder / "clients", CLIENTS, NBYTES)
    store.restore(max(done, default=0))
    store.keep(done[-KEEP:])
    print("ready", flush=True)
    for round_ in range(max(done, default=0) + 1, 10**6):
        store.write(round_, *cohort(round_))
        if round_ % 2 == 0:
            store.save(round_)
            part = folder / "part"
            part.write_text("\n".join(map(str, [*done, round_])))
            part.replace(folder / "saved")
            done = [*done, round_]
            store.keep(done[-KEEP:])


def _saved(folder: Path) -> list[int]:
    file = folder / "saved"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def kills(kind: str, folder: Path) -> None:
    """The bits of the last checkpoint after a kill, which every client must have."""
    if kind == "zarr3":
        return
    rng = random.Random(0)
    folder.mkdir(parents=True)
    wrong = 0
    for _ in range(12):
        command = [sys.executable, __file__, "child", "--only", kind, "--out"]
        process = subprocess.Popen([*command, str(folder)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0.05, 0.5))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wrong += not _same(kind, folder)
    print(f"{kind:6} 12 kills up to round {max(_saved(folder))}: {wrong} wrong states")


def _same(kind: str, folder: Path) -> bool:
    """Whether the store holds what the rounds up to the last checkpoint wrote."""
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    done = max(_saved(folder), default=0)
    store = STORES[kind](copy / "clients", CLIENTS, NBYTES)
    store.restore(done)
    rows, met = store.read(np.arange(CLIENTS))
    wanted, met_before = np.zeros_like(rows), np.zeros(CLIENTS, bool)
    for round_ in range(1, done + 1):
        ids, new = cohort(round_)
        wanted[ids] = new
        met_before[ids] = True
    shutil.rmtree(copy)
    return bool((met == met_before).all() and (rows[met] == wanted[met]).all())


def main(
    what: Positional[Literal["speed", "growth", "kills", "child"]],
    only: Literal[tuple(STORES)] | None = None,
    out: Path = Path("runs/stores"),
) -> None:
    """Measures every store, or `only` one, in an empty folder."""
    if what == "child":
        assert only is not None
        child(only, out)
    for kind in [only] if only else STORES:
        folder = out / kind
        shutil.rmtree(folder, ignore_errors=True)
        {"speed": speed, "growth": growth, "kills": kills}[what](kind, folder)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    tyro.cli(main)
