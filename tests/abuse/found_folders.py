"""Folders of runs and sweeps that were once answered badly, damaged as named."""

import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from abuse import bases, jobs
from abuse.values import Input

Damage = Callable[[Path], object]
DRAWN = "a page for readers, which is drawn anew"
SPENT = "seconds, which no two runs share"


def edit(name: str, change: Callable[[Any], Any]) -> Damage:
    """Writes what `change` makes of a JSON file, whose checksum is taken away."""

    def damage(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        content.pop("crc32", None)
        (folder / name).write_text(json.dumps(change(content)))

    return damage


def text(name: str, content: str | bytes) -> Damage:
    """Writes this into a file, or makes it."""
    raw = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(raw)


def gone(name: str, then: Callable[[Path], object] = lambda path: None) -> Damage:
    """Takes a file or folder away; `then` may put another thing in its place."""

    def damage(folder: Path) -> None:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        then(path)

    return damage


def arrays(name: str, change: Callable[[dict], dict]) -> Damage:
    """Writes what `change` makes of the arrays of the first archive of this name."""

    def damage(folder: Path) -> None:
        path = sorted(folder.glob(name))[0]
        with np.load(path) as stored:
            np.savez(path, **change(dict(stored)))

    return damage


def lines(change: Callable[[list[str]], list[str]]) -> Damage:
    """Writes what `change` makes of the lines of the log."""

    def damage(folder: Path) -> None:
        path = folder / "metrics.jsonl"
        path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")

    return damage


def rounds(number: int) -> Damage:
    """Leaves so many of the rounds that metrics of each client are kept of."""

    def change(stored: dict) -> dict:
        n = len(stored["round"])
        return {k: v[:number] if len(v) == n else v for k, v in stored.items()}

    return arrays("per_client.npz", change)


def swap(folder: Path) -> None:
    a, b = sorted((folder / "runs").iterdir())
    a.rename(folder / "c")
    b.rename(a)
    (folder / "c").rename(b)


def times(factor: float) -> Damage:
    """Multiplies the metrics of each client."""
    return arrays(
        "per_client.npz",
        lambda stored: {k: v * factor if "/" in k else v for k, v in stored.items()},
    )


def junk(name: str) -> Damage:
    return lambda folder: (folder / name).write_bytes(b"\xff" * 50)


def zeros(name: str) -> Damage:
    return lambda folder: (folder / name).write_bytes(
        bytes((folder / name).stat().st_size)
    )


LOG = "metrics.jsonl"
CUT: dict[str, Damage] = {  # of an unfinished run
    "u-rm-per_client.npz": gone("per_client.npz"),
    "u-metrics-edit": lines(lambda all_: [all_[0].replace("1.", "2."), *all_[1:]]),
    "u-metrics-order": lines(lambda all_: [all_[1], all_[0], *all_[2:]]),
    "u-pc-drop-round": rounds(1),
    "u-pc-fewer-rounds": rounds(0),
    "u-pc-zeros": times(0),
    "u-pc-shape": arrays(
        "per_client.npz",
        lambda stored: {k: v[..., :3] for k, v in stored.items()},
    ),
    "u-list-executor.json": text("executor.json", "[]"),
    "u-null-executor.json": text("executor.json", "null"),
    "u-emptyobj-executor.json": text("executor.json", "{}"),
    "u-widthneg": edit("executor.json", lambda all_: all_ | {"width": -2}),
    "u-list-partition.json": text("partition.json", "[]"),
    "u-null-partition.json": text("partition.json", "null"),
    "u-part-unseen": edit("partition.json", lambda all_: all_ | {"unseen": {}}),
    "u-junk-metrics.jsonl": junk(LOG),
    "u-dir-metrics.jsonl": gone(LOG, Path.mkdir),
    "u-junk-timing.jsonl": junk("timing.jsonl"),
    "u-dir-timing.jsonl": gone("timing.jsonl", Path.mkdir),
    "u-metrics-nan": lines(lambda all_: [all_[0].replace("1.", "NaN, 1."), *all_[1:]]),
    "u-ck-file": gone("checkpoints", lambda path: path.write_text("x")),
    "u-ck-sup": lambda folder: (folder / "checkpoints" / "²").mkdir(),
    "u-ck-numfile": text("checkpoints/7", "x"),
    "u-ck-loop": gone("checkpoints", lambda path: path.symlink_to(path)),
    "fo-lockfifo": gone(".lock", os.mkfifo),
    "fo-configfifo": gone("config.json", os.mkfifo),
    "fo-partdir": lambda folder: (folder / "config.json.part").mkdir(),
}
DONE: dict[str, Damage] = {  # of a finished run
    "f-report-empty": text("report.html", ""),
    "f-pc-rm": gone("per_client.npz"),
    "f-summary-list": text("summary.json", "[]"),
    "f-summary-obj": text("summary.json", "{}"),
}
STORES: dict[str, Damage] = {
    "st-D-slots-junk": junk("clients/slots.bin"),
    "st-D-slots-zero": zeros("clients/slots.bin"),
    "st-D-json-fmtstr": edit("clients/store.json", lambda all_: all_ | {"format": "x"}),
    "st-D-slotskey": edit("clients/store.json", lambda all_: all_ | {"slots": "x"}),
    "st-D-noslots": edit(
        "clients/store.json",
        lambda all_: {k: v for k, v in all_.items() if k != "slots"},
    ),
    "st-H-emptyz": lambda folder: np.savez(folder / "clients/round-4.npz"),
    "st-H-rows-only": arrays(
        "clients/round-4.npz", lambda all_: {"rows-0": all_["rows-0"]}
    ),
    "st-H-json-fmtstr": edit("clients/store.json", lambda all_: all_ | {"format": "x"}),
    "st-H-zlib": junk("clients/round-4.npz"),
}
SWEEPS: dict[str, Damage] = {
    "sw-npz-swap": swap,
    "sw-json-list": text("sweep.json", "[]"),
    "sw-json-obj": text("sweep.json", "{}"),
    "sw-json-overval": edit("sweep.json", lambda all_: all_ | {"over": {"mu": 3}}),
    "sw-npz-partial": arrays("runs/*.npz", lambda all_: {"point": all_["point"]}),
    "sw-npz-shape": arrays(
        "runs/*.npz", lambda all_: {k: v[..., :1] for k, v in all_.items() if v.ndim}
    ),
    "sw-npz-badname": text("runs/x.npz", "x"),
    "sw-runs-file": gone("runs", lambda path: path.write_text("x")),
}
REPORTS: dict[str, Damage] = {
    "report-hist": edit(
        "partition.json", lambda all_: all_ | {"class_histogram": [[1, 2], [3, 4]]}
    ),
    "report-pc-edit": times(5),
    "report-metrics-str": text(LOG, '"x"\n'),
    "report-summary-last": edit("summary.json", lambda all_: all_ | {"last": 3}),
    "report-config-seedstr": edit(
        "config.json",
        lambda all_: all_ | {"randomness": {"seed": "x"}, "seed": "x"},
    ),
}
# Whole commands, {B} for the folder of a finished run; the last word is for the answer.
PATHS = {
    "fo-longname": f"{{RUN}} --out {{T}}/{'x' * 300} name",
    "fo-nul": "{RUN} --out '{T}/a\0b' out",
    "fo-surr": "{RUN} --out {T}/\udcff\udcfe out",
    "report-outfile": "report {B} --out {T}/f /f",
    "report-outro": "report {B} --out /proc/x /proc/x",
    "export-isdir": "export {B} --client 1 --out {T} folder",
    "export-proc": "export {B} --client 1 --out /proc/o.npz /proc",
    "export-onto-run": "export {T}/r --client 1 --out {T}/r/config.json config.json",
    "f-more-rounds-noper": "{RUN} --out {T}/r --rounds 8 per_client.npz",
}
MAY = {
    "f-report-empty": DRAWN,
    "sw-npz-badname": "a file of the user's own, which stays",
    "u-junk-timing.jsonl": SPENT,
    "u-dir-timing.jsonl": SPENT,
}


def table() -> Iterator[Input]:
    """All of them."""
    for name, damage in CUT.items():
        yield _input(name, "run", damage, cut=True)
    for name, damage in DONE.items():
        yield _input(name, "run", damage, cut=False)
    for name, damage in STORES.items():
        base = "disk" if name.startswith("st-D") else "host"
        yield _input(name, base, damage, cut=True)
    for name, damage in SWEEPS.items():
        yield _input(name, "sweep", damage, cut=False)
    for name, damage in REPORTS.items():
        line = "report {T}/r {T}/b --out {T}/o /r"
        yield _input(name, "run", damage, cut=False, line=line)
    for name, line in PATHS.items():
        damage = gone("per_client.npz" if "noper" in name else "nothing")
        yield _input(name, "run", damage, cut=False, line=line)


def _input(name: str, base: str, damage: Damage, cut: bool, line: str = "") -> Input:
    """The command of the folder, or another line, after the damage."""

    def make(place: Path) -> None:
        damage(bases.copied(base, place / "r", cut))
        (place / "b").symlink_to(bases.finished("run"))
        (place / "f").write_text("x")

    line = line or "{RUN} --out {T}/r /r"
    line = line.replace("{RUN}", bases.COMMANDS[base]).replace("{B}", "{T}/b")
    *words, answer = shlex.split(line)
    may = MAY.get(name, "")
    check = None
    if answer == "/r" and not may and words[0] != "report":
        may = "it ends with the bits of a whole run"
        same = jobs.same_sweep if base == "sweep" else jobs.same_run

        def check(place: Path) -> None:
            same(place / "r", bases.finished(base))

    return Input(
        f"found {name}",
        tuple(words),
        names=(answer,),
        make=make,
        may=may,
        check=check,
        whole=check is not None,
    )
