"""SuPerFed, Table 5: when personalisation starts, CIFAR-10, 100 clients (KDD 2022).

    pfljax prepare mnist; pfljax prepare cifar10
    python experiments/superfed_kdd22/table5.py --scale small

L / R is the share of the rounds before mixing starts; nu = 2, mu = 0.01 and R = 200.
The small scale is MNIST with 500 clients and R = 100, and is shown beside the numbers
of CIFAR-10. The accuracy is that of each client's best lambda on its test examples. The
loss is the greatest over the lambdas that are best for some client. The settings are
those of the text; the authors' script has R = 300, and nu = 1 for MM.

A start at 0.8 is the worst on each of three seeds, and a start at 0.2 is the best for
LM (see `REPORT.md`). The small scale with one seed took 11 min on one core.
"""

from collections.abc import Sequence

from protocol import CIFAR10, MNIST, Column, main
from shared.published import SMALLER_IS_BETTER, Cell, tau

METHODS = ("SuPerFed-MM", "SuPerFed-LM")
SMALL = {
    "dataset": MNIST.dataset,
    "model": MNIST.model,
    "clients": 500,
    "rounds": 100,
}
COLUMNS = [
    Column(
        f"start-{share}",
        {"table": "T5", "setting": f"L/R={share}"},
        CIFAR10.replace(rounds=200),
        SMALL,
        {method: {"start": share, "nu": 2.0} for method in METHODS},
        METHODS,
    )
    for share in (0.0, 0.2, 0.4, 0.6, 0.8)
]

METRICS = {"accuracy": "top1_acc_pct", "loss": "loss"}


def along(found: Sequence[Cell]) -> str:
    """For each method and metric, Kendall's tau of its two rankings of L / R."""
    lines = []
    for method in METHODS:
        for metric in METRICS:
            own = [c for c in found if (c.method, c.metric) == (method, metric)]
            own = [cell for cell in own if cell.published == cell.published]
            sign = -1 if metric in SMALLER_IS_BETTER else 1
            theirs = [sign * cell.published for cell in own]
            ours = [sign * cell.mean for cell in own]
            if len(own) > 2:
                lines.append(f"{method}, {metric}: {tau(theirs, ours):.2f}")
    return "\n".join(["Kendall's tau of the rankings of L / R:", *lines])


if __name__ == "__main__":
    print(along(main(__doc__, "runs/superfed-table5", COLUMNS, METRICS)))
