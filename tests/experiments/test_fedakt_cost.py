"""Floats of a client and round are those of the formulas, from shapes alone."""

import pytest

LABELS = [
    "Standalone",
    "LG-FedAvg",
    "FedGen",
    "FML",
    "FedKD",
    "FedDistill",
    "FedProto",
    "FedAKT",
    "FedTGP",
    "FedGH",
]
# One of each kind: a head, a generator, a small model, prototypes, an adapter.
TRACED = ["LG-FedAvg", "FedGen", "FedKD", "FedProto", "FedAKT"]


@pytest.mark.slow
@pytest.mark.parametrize("label", TRACED)
def test_leaves_are_those_of_the_formula(study, label):
    cost = study("cost")
    # All classes are held, so tables by class have as many rows as the formula says.
    paper = cost.formula(label, cost.sizes(100), held=100)
    beyond = cost.extras(label, 100)
    # The largest and the smallest model: what is sent is alike for all.
    first, _, _, smallest, _ = cost.groups_of(label)
    for sent in cost.floats([first, smallest]):
        assert sent.up == paper.up + beyond.up
        assert sent.down == paper.down + beyond.down


@pytest.mark.slow
def test_sizes_are_those_of_the_card(study):
    size = study("cost").sizes(100)
    assert size["adapter"] == 408_632
    assert size["head"] == 550_600
    assert size["meme"] == 408_632 + 440_500
    # 582,120 with the bias of the first layer, which is of no use before a norm.
    assert study("cost").generator_size(100, 1000) == 582_120 - 512


def test_totals_are_in_the_order_of_the_papers_text(study):
    cost = study("cost")
    size = cost.sizes(100)
    total = {label: sum(cost.formula(label, size, held=10)) for label in LABELS}
    assert total["FedDistill"] == 11_000
    assert total["FedProto"] == 110_000
    assert total["FedAKT"] == 817_264
    assert total["FedProto"] < total["FedAKT"] < total["FedGen"] < total["FML"]
    assert total["Standalone"] == 0


def test_published_traffic_of_fedtgps_table_5(study):
    """20 clients, 512 features, CIFAR-100: a head of one layer, 2.05 M both ways."""
    head = 512 * 100 + 100
    size = {"head": head, "adapter": 0, "meme": 924_708}
    size |= {"features": 512, "classes": 100}
    cost = study("cost")
    assert 20 * sum(cost.formula("LG-FedAvg", size, 10)) == 2_052_000
    assert 20 * sum(cost.formula("FML", size, 10)) == pytest.approx(36.99e6, rel=1e-4)
    # How many classes a client has is not said: FedProto's 1.48 M tell it, and FedTGP
    # sends as much. FedDistill's .29 M are of the same clients.
    held = (1.48e6 / 20 - 100 * 512) / 512
    for label, published in (("FedTGP", 1.48e6), ("FedDistill", 0.29e6)):
        total = 20 * sum(cost.formula(label, size, held))
        assert total == pytest.approx(published, rel=5e-3)


def test_methods_of_the_tables_are_those_of_the_cost(study):
    protocol = study("protocol")
    assert [*protocol.METHODS, *protocol.LATER] == LABELS
