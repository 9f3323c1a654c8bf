"""SuPerFed, Table 3: natural clients, FEMNIST and Shakespeare (KDD 2022).

    pfljax prepare shakespeare_roles --raw FOLDER
    python experiments/superfed_kdd22/table3.py --scale small --columns Shakespeare
    python experiments/superfed_kdd22/table3.py --scale paper --columns FEMNIST \\
        --dataset leaf:path=FOLDER/femnist/data,classes=62

FEMNIST, and Shakespeare at paper scale, come from LEAF's own preprocessing. The small
scale takes the 25 largest of Shakespeare's roles from the plays themselves. It has a
160th of the examples, an LSTM of 64 units, and 10 rounds of batches of 10 at the rate
0.1.

FedAvg predicts 26 % of the next characters after 10 rounds, and the paper reports 51 %
after 500 (see `REPORT.md`). The small scale took 24 min on two busy cores.
"""

from protocol import PROTOCOL, Column, main

NATURAL = PROTOCOL.replace(partition="natural", clients=None, lr_decay=0.995)
FEMNIST = Column(
    "FEMNIST",
    {"table": "T3", "dataset": "FEMNIST"},
    NATURAL.replace(dataset="leaf:path=femnist,classes=62", model="vgg9_superfed"),
    {"rounds": 2},
    {
        "SuPerFed-MM": {"nu": 2.0, "start": 0.25},
        "SuPerFed-LM": {"nu": 3.0, "start": 0.45},
        "pFedMe": {"lam": 5.0},
    },
    quick=False,
)
SHAKESPEARE = Column(
    "Shakespeare",
    {"table": "T3", "dataset": "Shakespeare"},
    NATURAL.replace(
        dataset="leaf:path=shakespeare,alphabet=printable",
        model="char_lstm_superfed",
        epochs=5,
        batch_size=50,
        lr=0.8,
    ),
    {
        "dataset": "shakespeare_roles:stride=160,min_size=150,alphabet=printable",
        "model": "char_lstm_superfed:hidden=64",
        "rounds": 10,
        "batch_size": 10,
        "lr": 0.1,
    },
    {
        "SuPerFed-MM": {"nu": 1.5, "start": 0.45},
        "SuPerFed-LM": {"nu": 2.0, "start": 0.35},
        "pFedMe": {"lam": 0.1},
        "FedRep": {"head_epochs": 5},
    },
)
METRICS = {"accuracy": "top1_acc_pct", "top5": "top5_acc_pct"}

if __name__ == "__main__":
    main(__doc__, "runs/superfed-table3", [FEMNIST, SHAKESPEARE], METRICS)
