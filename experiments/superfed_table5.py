"""SuPerFed, Table 5: when personalisation starts, CIFAR-10, 100 clients (KDD 2022).

    pfljax prepare mnist; pfljax prepare cifar10
    python experiments/superfed_table5.py --scale small

L / R is the share of the rounds before mixing starts; nu = 2, mu = .01, R = 200. The
small scale is MNIST with 500 clients, R = 100, beside the numbers of CIFAR-10. The
accuracy is that of each client's best lambda on its test rows. So is the loss here; the
published one is the greatest over the lambdas that are best for some client.
"""

from superfed import CIFAR10, MNIST, Column, main

METHODS = ("SuPerFed-MM", "SuPerFed-LM")
SMALL = {"dataset": MNIST.dataset, "model": MNIST.model, "clients": 500, "rounds": 100}
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

if __name__ == "__main__":
    metrics = {"accuracy": "top1_acc_pct", "loss": "loss"}
    main(__doc__, "runs/superfed-table5", COLUMNS, metrics)
