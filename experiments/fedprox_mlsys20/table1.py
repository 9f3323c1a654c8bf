"""FedProx, Table 1: devices and examples of the data sets (MLSys 2020).

    pfljax prepare mnist
    python experiments/fedprox_mlsys20/table1.py

The column "rows" counts the examples of all splits. The paper's table has no synthetic
data. Each seed draws the power law of MNIST again, so the smallest and the largest
standard deviation are given. Data sets that are not on the machine are left out.
"""

import sys
from typing import NamedTuple

import numpy as np
from drawing import HERE, Place, script, write
from problems import TITLES, Scale, federation

from pfljax.runtime import errors

PUBLISHED = {  # devices, rows, mean and std of rows a device
    "MNIST": (1000, 69_035, 69, 106),
    "FEMNIST": (200, 18_345, 92, 159),
    "Shakespeare": (143, 517_106, 3_616, 6_808),
    "Sent140": (772, 40_783, 53, 32),
}


class Row(NamedTuple):
    """A data set; means over seeds."""

    dataset: str
    devices: int
    rows: float
    mean: float
    std_least: float
    std_most: float


def sizes(dataset: str, scale: Scale, seed: int) -> np.ndarray:
    """Rows of each device, i[C]."""
    made = federation(dataset, scale, seed)
    return np.asarray(made.train.size) + np.asarray(made.test.size)


def row_of(dataset: str, by_seed: list[np.ndarray]) -> Row:
    """The statistics of a data set's draws."""
    std = [float(np.std(rows)) for rows in by_seed]
    return Row(
        dataset=TITLES[dataset],
        devices=len(by_seed[0]),
        rows=float(np.mean([rows.sum() for rows in by_seed])),
        mean=float(np.mean([rows.mean() for rows in by_seed])),
        std_least=min(std),
        std_most=max(std),
    )


def markdown(rows: list[Row]) -> str:
    """The table, and what is published beside it."""
    lines = [
        "| data | devices | rows | mean | std | published: devices, rows, mean, std |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        texts = (
            row.dataset,
            f"{row.devices}",
            f"{row.rows:,.0f}",
            f"{row.mean:.1f}",
            f"{row.std_least:.0f} to {row.std_most:.0f}",
            _published(row.dataset),
        )
        lines.append(f"| {' | '.join(texts)} |")
    absent = [name for name in PUBLISHED if name not in {row.dataset for row in rows}]
    lines += [f"| {name} | | | | | {_published(name)} |" for name in absent]
    return "\n".join(lines)


def _published(dataset: str) -> str:
    return ", ".join(f"{value:,}" for value in PUBLISHED.get(dataset, ()))


def main(
    scale: Scale = "paper",
    seeds: script.Seeds = (0, 1, 2, 3, 4),
    results: Place = str(HERE),
) -> list[Row]:
    """Devices and rows of the data sets."""
    rows = []
    for dataset in TITLES:
        try:
            by_seed = [sizes(dataset, scale, seed) for seed in seeds]
        except errors.KINDS as error:  # data that are not on this machine
            print(f"{TITLES[dataset]} is left out: {error}", file=sys.stderr)
            continue
        rows.append(row_of(dataset, by_seed))
    write(f"table1_{scale}", rows, markdown(rows), None, results)
    return rows


if __name__ == "__main__":
    script.run(main)
