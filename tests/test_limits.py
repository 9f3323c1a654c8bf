"""Where one method becomes another: equal trajectories under the same keys.

Slow tests: what a method computes is compared with NumPy by the fast tests of its own.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pfljax import engine, selection
from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms.bayesian.pfedvem import pfedvem
from pfljax.algorithms.bayesian.virtual import virtual
from pfljax.algorithms.clustering.hypcluster import hypcluster
from pfljax.algorithms.clustering.ifca import ifca
from pfljax.algorithms.decoupling.fedbabu import fedbabu
from pfljax.algorithms.decoupling.fedbn import fedbn
from pfljax.algorithms.decoupling.fedcac import fedcac
from pfljax.algorithms.decoupling.fedper import fedper
from pfljax.algorithms.decoupling.fedphp import fedphp
from pfljax.algorithms.decoupling.fedrep import fedrep
from pfljax.algorithms.decoupling.fedrod import fedrod
from pfljax.algorithms.decoupling.fenda import fenda
from pfljax.algorithms.decoupling.lg_fedavg import lg_fedavg
from pfljax.algorithms.decoupling.perfcl import perfcl
from pfljax.algorithms.decoupling.pfedsim import pfedsim
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.global_model.afl import afl
from pfljax.algorithms.global_model.ccvr import ccvr
from pfljax.algorithms.global_model.feddyn import feddyn
from pfljax.algorithms.global_model.fedexp import fedexp
from pfljax.algorithms.global_model.fedlc import fedlc
from pfljax.algorithms.global_model.fednova import fednova
from pfljax.algorithms.global_model.fedntd import fedntd
from pfljax.algorithms.global_model.fedprox import fedprox
from pfljax.algorithms.global_model.fedprox_adaptive import fedprox_adaptive
from pfljax.algorithms.global_model.fedsam import fedsam
from pfljax.algorithms.global_model.flexlora import flexlora
from pfljax.algorithms.global_model.flora import flora
from pfljax.algorithms.global_model.hetlora import hetlora
from pfljax.algorithms.global_model.moon import moon
from pfljax.algorithms.global_model.q_fedavg import q_fedavg
from pfljax.algorithms.global_model.scaffold import scaffold
from pfljax.algorithms.interpolation import _simplex as simplex
from pfljax.algorithms.interpolation.apfl import apfl
from pfljax.algorithms.interpolation.floco import floco
from pfljax.algorithms.interpolation.l2gd import l2gd
from pfljax.algorithms.interpolation.mapper import mapper
from pfljax.algorithms.interpolation.superfed import superfed
from pfljax.algorithms.local import local as alone
from pfljax.algorithms.meta_learning.aruba import aruba
from pfljax.algorithms.meta_learning.fedmeta import fedmeta
from pfljax.algorithms.meta_learning.per_fedavg import per_fedavg
from pfljax.algorithms.meta_learning.pfedhn import pfedhn
from pfljax.algorithms.meta_learning.reptile import reptile
from pfljax.algorithms.multi_task.apple import apple
from pfljax.algorithms.multi_task.ditto import ditto
from pfljax.algorithms.multi_task.fedala import fedala
from pfljax.algorithms.multi_task.fedamp import fedamp
from pfljax.algorithms.multi_task.fedcurv import fedcurv
from pfljax.algorithms.multi_task.fedem import fedem
from pfljax.algorithms.multi_task.fedfomo import fedfomo
from pfljax.algorithms.multi_task.heurfedamp import heurfedamp
from pfljax.algorithms.multi_task.mr_mtl import mr_mtl
from pfljax.algorithms.multi_task.pfedme import pfedme
from pfljax.conformance import toy
from pfljax.core import aggregation, tree
from pfljax.core.optimizers import sgd
from pfljax.core.types import ClientData, Local

pytestmark = pytest.mark.slow

CLIENTS = len(toy.SIZES)
COHORT = 5
TASK = toy.quadratic()
SGD = Local(0.1, batch_size=4, epochs=2)
LOCAL = SGD._replace(optimizer=sgd(0.9, 1e-2))  # the papers' protocol


@cache
def one_round(factory, local, cohort):
    """A compiled round, which runs that differ in numbers alone share."""

    def after(state, train, options):
        method = factory(TASK, local, **options)
        setting = engine.Setting(method, local, selection.uniform(cohort, CLIENTS))
        return engine.one_round(setting, state, train)[0]

    return jax.jit(after)


def play(factory, local=LOCAL, cohort=COHORT, change=lambda state: state, **options):
    """The states after 0 .. 3 rounds on the noisy clients; `options` are numbers."""
    method = factory(TASK, local, **options)
    setting = engine.Setting(method, local, selection.uniform(cohort, CLIENTS))
    states = [change(engine.init(setting, TASK, CLIENTS, jax.random.key(0)))]
    for _ in range(3):
        after = one_round(factory, local, cohort)
        states.append(after(states[-1], toy.noisy_clients(), options))
    return states


@cache
def reference(factory, local=LOCAL, cohort=COHORT):
    """The states of a method without options, to which several others reduce."""
    return play(factory, local, cohort)


def last(algorithm, task=TASK, local=LOCAL, **options):
    """The state after 3 rounds of 5 of 8 ragged clients with noisy minibatches."""
    options = {"cohort": COHORT} | options
    return toy.run_rounds(algorithm, task, local, toy.noisy_clients(), **options)[0][-1]


def uniform(task, local, **options):
    """FedAvg, every client of weight 1."""
    return fedavg(task, local, **options)._replace(
        aggregate=lambda w, uploads, cohort: aggregation.mean(uploads, cohort.mask)
    )


@pytest.fixture(scope="module")
def averaged():
    return reference(fedavg)[-1]


@pytest.fixture(scope="module")
def averaged_uniformly():
    return reference(uniform)[-1]


@pytest.fixture(scope="module")
def trained_alone():
    return reference(alone)[-1]


UNMIXED = partial(superfed, start=1.0, rounds=3)  # all rounds before it mixes


@pytest.mark.parametrize(
    ("factory", "options"),
    [
        (fedprox, {"mu": 0.0}),
        (ditto, {"lam": 0.7}),
        (UNMIXED, {"mu": 0.0, "nu": 5.0}),
        (fedsam, {"rho": 0.0}),
    ],
    ids=["fedprox mu=0", "ditto any lam", "superfed start=1", "fedsam rho=0"],
)
def test_the_server_follows_fedavg(factory, options, averaged):
    toy.assert_close(play(factory, **options)[-1].server, averaged.server, 1e-6)


def test_fedcurv_without_pull_is_fedavg(averaged):
    toy.assert_close(
        last(fedcurv(TASK, LOCAL, lam=0.0)).server.w, averaged.server, 1e-6
    )


def test_the_server_of_apfl_follows_uniform_fedavg(averaged_uniformly):
    state = last(apfl(TASK, LOCAL, alpha=0.3))
    toy.assert_close(state.server, averaged_uniformly.server, 1e-6)


@cache
def classified(factory, **options):
    """The state after 2 rounds of a perceptron, for losses of logits."""
    task, (train, _) = toy.classifier(), toy.ragged()
    method = factory(task, LOCAL, **options)
    return toy.run_rounds(method, task, LOCAL, train, rounds=2, cohort=COHORT)[0][-1]


@pytest.mark.parametrize(
    ("factory", "options", "same"),
    [
        (fedlc, {"tau": 0.0}, fedavg),
        (fedntd, {"beta": 0.0}, fedavg),
        (moon, {"mu": 0.0}, fedavg),
        (fedrod, {"gamma": 0.0}, fedavg),
        (fedphp, {"lam": 0.0}, fedavg),
        (pfedsim, {"warm_up": 1.0}, fedavg),
        pytest.param(ccvr, {"server_steps": 0}, fedavg, marks=pytest.mark.slow),
        pytest.param(fedcac, {"tau": 0.0}, uniform, marks=pytest.mark.slow),
    ],
)
def test_the_server_of_a_classifier_follows_fedavg(factory, options, same):
    server = classified(factory, **options).server
    w = server.w if factory in (pfedsim, fedcac, ccvr) else server
    toy.assert_close(w, classified(same).server, 1e-6)


@pytest.mark.parametrize(
    ("factory", "options", "model"),
    [
        (q_fedavg, {"q": 0.0}, lambda w: w),
        (afl, {"weight_lr": 0.0}, lambda server: server.w),
        (fedexp, {"eps": 1e9}, lambda server: server.w),
    ],
    ids=["q_fedavg q=0", "afl weight_lr=0", "fedexp large eps"],
)
def test_the_server_follows_uniform_fedavg(factory, options, model, averaged_uniformly):
    state = play(factory, **options)[-1]
    toy.assert_close(model(state.server), averaged_uniformly.server, 1e-6)


def test_a_proximal_term_is_no_fedavg(averaged):
    moved = play(fedprox, mu=0.5)[-1].server
    assert not np.allclose(toy.flat(moved), toy.flat(averaged.server), atol=1e-3)


def test_ditto_without_pull_is_local_training(trained_alone):
    toy.assert_same(play(ditto, lam=0.0)[-1].clients, trained_alone.clients)


def test_mr_mtl_without_pull_is_local_training(trained_alone):
    toy.assert_same(play(mr_mtl, lam=0.0)[-1].clients, trained_alone.clients)


def regrouped(name):
    """The quadratic with all parameters in one group."""
    return TASK._replace(groups=jax.tree.map(lambda _: name, TASK.groups))


@pytest.mark.parametrize(("method", "shared"), [(fedper, "body"), (lg_fedavg, "head")])
def test_a_split_method_that_shares_all_is_fedavg(method, shared, averaged):
    task = regrouped(shared)
    toy.assert_same(last(method(task, LOCAL), task).server, averaged.server)


@pytest.mark.parametrize(("method", "own"), [(fedper, "head"), (lg_fedavg, "body")])
def test_a_split_method_that_shares_nothing_is_local_training(
    method, own, trained_alone
):
    task = regrouped(own)
    toy.assert_same(last(method(task, LOCAL), task).clients, trained_alone.clients)


@pytest.mark.slow
def test_perfcl_without_contrast_is_fenda():
    options = {"rounds": 2, "cohort": COHORT}
    task, (train, _) = toy.classifier(), toy.ragged()
    found, wanted = (
        toy.run_rounds(method, task, LOCAL, train, **options)[0][-1]
        for method in (perfcl(task, LOCAL, mu=0.0, gamma=0.0), fenda(task, LOCAL))
    )
    toy.assert_close(found.server, wanted.server, 1e-6)
    toy.assert_close(found.clients.kept, wanted.clients, 1e-6)


@pytest.mark.parametrize(
    "method", [fedrep, pytest.param(fedbabu, marks=pytest.mark.slow)]
)
def test_a_split_method_without_a_head_is_uniform_fedavg(method, averaged_uniformly):
    task = regrouped("body")
    toy.assert_close(last(method(task, LOCAL), task).server, averaged_uniformly.server)


@pytest.mark.slow
def test_fedbn_without_normalisation_is_fedavg(averaged):
    toy.assert_same(last(fedbn(TASK, LOCAL)).server, averaged.server)


def test_fedrep_without_head_epochs_never_trains_a_head():
    state = last(fedrep(TASK, LOCAL, head_epochs=0))
    heads = state.clients["head"]
    toy.assert_same(heads, jnp.broadcast_to(heads[:1], heads.shape))


def test_pfedvem_without_a_head_is_fedavg(averaged):
    task = regrouped("body")
    toy.assert_close(last(pfedvem(task, LOCAL), task).server, averaged.server, 1e-6)


def test_virtual_of_points_without_divergence_is_uniform_fedavg(monkeypatch):
    """Damped by 1 / M, for the server adds the changes of M clients."""
    monkeypatch.setattr("pfljax.algorithms.bayesian.virtual.STD", 1e-15)
    adam = SGD._replace(optimizer=optax.adam)
    options = {"kl_weight": 0.0, "damping": 1 / COHORT, "posterior_lr": 0.1}
    method = virtual(TASK, SGD, private=False, **options)
    found = method.server_model(last(method, local=SGD).server)
    toy.assert_close(found, last(uniform(TASK, adam), local=adam).server)


FIXED = partial(apfl, adaptive=False)


def test_apfl_of_own_weight_one_is_local_training(trained_alone):
    state = play(FIXED, alpha=1.0)[-1]
    toy.assert_close(state.clients.v, trained_alone.clients, 1e-6)
    assert (state.clients.alpha == 1).all()


def test_apfl_of_own_weight_zero_is_evaluated_as_fedavg():
    state = play(FIXED, alpha=0.0)[-1]
    personal = jax.vmap(FIXED(TASK, LOCAL, alpha=0.0).personal, (None, None, 0, None))
    evaluated = personal(None, state.server, state.clients, None)
    everybody = jnp.ones((CLIENTS, 1))
    toy.assert_same(evaluated, jax.tree.map(lambda w: everybody * w, state.server))


def test_apfl_of_own_weight_zero_never_moves_its_own_model():
    """By plain SGD: a decay of the weights would shrink it."""
    method = apfl(TASK, SGD, alpha=0.0, adaptive=False)
    first, *_, end = toy.run_rounds(
        method, TASK, SGD, toy.noisy_clients(), cohort=COHORT
    )[0]
    toy.assert_same(first.clients.v, end.clients.v)
    assert not np.allclose(toy.flat(first.server), toy.flat(end.server))


def test_l2gd_without_pull_is_local_training():
    """In the rounds of coin 0; here in all of them, for 1 is all but impossible."""
    method = l2gd(TASK, LOCAL, lam=0.0, p=1e-7)
    toy.assert_same(last(method).clients, last(alone(TASK, LOCAL)).clients)


def test_l2gd_that_goes_all_the_way_is_fedavg_of_many_local_rounds():
    """Rounds of coin 0 train; at coin 1 all clients start again at the mean."""
    method = l2gd(TASK, SGD, lam=10.0, p=0.5)
    states, _ = toy.run_rounds(method, TASK, SGD, toy.quadratic_clients(), rounds=8)
    w = toy.flat(states[0].clients)
    coins = [bool(state.server.coin) for state in states[:-1]]
    assert coins.count(True) > 1
    for coin, state in zip(coins, states[1:], strict=True):
        if coin:
            w = np.tile(w.mean(0), (4, 1))
        else:
            steps = 2 * -(-toy.COUNTS // 4)
            w = np.array(
                [
                    toy.descend(w[k], lambda x, k=k: toy.gradient(k, x), steps[k])
                    for k in range(4)
                ]
            )
        np.testing.assert_allclose(toy.flat(state.clients), w, atol=1e-5)


@pytest.mark.parametrize(
    ("share", "method"), [(0.0, uniform), (1.0, alone)], ids=["uniform", "local"]
)
def test_mapper_of_one_share_is_uniform_fedavg_or_local_training(share, method):
    options = {"lowest": share, "highest": share, "shares": 1, "global_steps": None}
    mixed, same = classified(mapper, **options), classified(method)
    if method is alone:
        toy.assert_close(mixed.clients.h, same.clients, 1e-6)
    else:
        toy.assert_close(mixed.server, same.server, 1e-6)


def test_fedamp_that_attracts_nobody_is_local_training(trained_alone):
    """Clients that join later start from their own model, not from the mean."""
    method = fedamp(TASK, LOCAL, alpha=1e-30, lam=0.0, start="own")
    toy.assert_close(last(method).clients, trained_alone.clients, 1e-6)


@pytest.mark.parametrize("factory", [fedamp, heurfedamp])
def test_fedamp_of_all_clients_that_attract_nobody_is_local_training(factory):
    options = {"alpha": 1e-30, "lam": 0.0}
    if factory is heurfedamp:
        options = {"own_weight": 1.0, "pull": 0.0}
    found = last(factory(TASK, LOCAL, **options), cohort=CLIENTS)
    wanted = reference(alone, cohort=CLIENTS)[-1]
    toy.assert_close(found.clients, wanted.clients, 1e-6)


def test_fedfomo_of_one_client_is_local_training_on_its_part():
    data = toy.noisy_clients()
    data = data._replace(offset=data.offset[1:2], size=data.size[1:2])
    part = data._replace(size=data.size - data.size // 5)
    found, _ = toy.run_rounds(fedfomo(TASK, LOCAL), TASK, LOCAL, data)
    wanted, _ = toy.run_rounds(alone(TASK, LOCAL), TASK, LOCAL, part)
    toy.assert_close(found[-1].clients, wanted[-1].clients, 1e-6)


def test_apple_of_one_client_is_local_training():
    data = toy.noisy_clients()
    data = data._replace(offset=data.offset[1:2], size=data.size[1:2])
    found, _ = toy.run_rounds(apple(TASK, LOCAL, weight_lr=0.0), TASK, LOCAL, data)
    wanted, _ = toy.run_rounds(alone(TASK, LOCAL), TASK, LOCAL, data)
    toy.assert_close(found[-1].clients, wanted[-1].clients, 1e-6)


def test_apple_of_equal_parts_is_fedavg_of_a_step_by_the_number_of_clients():
    """One plain step of all: the mean of the cores goes as FedAvg of the rate / C."""
    once = SGD._replace(epochs=None, steps=1)
    slow = once._replace(learning_rate=once.learning_rate / CLIENTS)
    method = apple(TASK, once, weight_lr=0.0)
    found = last(method, local=once, cohort=CLIENTS).server.cores
    mean = jax.tree.map(lambda leaf: leaf.mean(0), found)
    wanted = last(uniform(TASK, slow), local=slow, cohort=CLIENTS)
    toy.assert_close(mean, wanted.server, 1e-6)


def without_mixing(value, layers):
    """FedALA whose weights stay at this value."""

    def change(state):
        fixed = tree.scale(state.clients.weights, value)
        return state._replace(clients=state.clients._replace(weights=fixed))

    return play(FEDALA[layers], change=change)[-1]


FEDALA = {n: partial(fedala, layers=n, weight_lr=0.0) for n in (1, 2)}


def test_fedala_of_weights_one_is_fedavg(averaged):
    toy.assert_close(without_mixing(1.0, layers=2).server, averaged.server, 1e-6)


def test_fedala_of_weights_zero_in_all_layers_is_local_training(trained_alone):
    state = without_mixing(0.0, layers=2)
    toy.assert_close(state.clients.w, trained_alone.clients, 1e-6)


def test_fedala_of_weights_zero_in_the_head_is_fedper():
    found, wanted = without_mixing(0.0, layers=1), last(fedper(TASK, LOCAL))
    toy.assert_close(found.server["body"], wanted.server["body"], 1e-6)
    toy.assert_close(found.clients.w["head"], wanted.clients["head"], 1e-6)


def test_fedala_of_one_client_is_local_training():
    data = toy.noisy_clients()
    data = data._replace(offset=data.offset[1:2], size=data.size[1:2])
    mixed, _ = toy.run_rounds(fedala(TASK, LOCAL, layers=2), TASK, LOCAL, data)
    plain, _ = toy.run_rounds(alone(TASK, LOCAL), TASK, LOCAL, data)
    toy.assert_close(mixed[-1].clients.w, plain[-1].clients, 1e-6)


def test_heurfedamp_whose_clients_count_alike_is_uniform_fedavg():
    found = last(heurfedamp(TASK, LOCAL, sigma=0.0, pull=0.0), cohort=CLIENTS)
    wanted = reference(uniform, cohort=CLIENTS)[-1]
    toy.assert_close(affinity.mean(found.server), wanted.server, 1e-6)


@pytest.mark.parametrize("frozen", [{"beta": 0.0}, {"lam": 0.0}])
def test_pfedme_that_pulls_nothing_leaves_the_server(frozen):
    first, *_, end = play(pfedme, SGD, **({"beta": 1.0, "lam": 15.0} | frozen))
    toy.assert_same(first.server, end.server)
    assert not np.allclose(toy.flat(end.clients), toy.flat(end.server))


def test_pfedme_of_one_inner_step_is_fedavg_of_another_rate():
    """Of eta lam eta_p: 0.1 * 4 * 0.2, with one local step, where theta begins at w."""
    options = {"lam": 4.0, "inner_lr": 0.2, "inner_steps": 1}
    once = SGD._replace(epochs=None, steps=1)
    slow = once._replace(learning_rate=0.08)
    same = last(uniform(TASK, slow), local=slow)
    found = last(pfedme(TASK, once, **options), local=once)
    toy.assert_close(found.server, same.server)


def test_pfedme_whose_step_goes_all_the_way_uploads_theta():
    method = pfedme(TASK, SGD._replace(learning_rate=0.5), lam=2.0)
    state = last(method, local=SGD._replace(learning_rate=0.5), cohort=8)
    mean = jax.tree.map(lambda leaf: leaf.mean(0), state.clients)
    toy.assert_close(state.server, mean, 1e-5)


def test_floco_of_one_vertex_is_fedavg(averaged):
    """On both sides of tau: a simplex of one vertex is a point."""
    server = last(floco(TASK, LOCAL, vertices=1, tau=2, radius=0.5)).server
    toy.assert_close(simplex.point(TASK, server.w), averaged.server, 1e-6)


def test_superfed_that_never_mixes_is_fedprox():
    same = play(fedprox, mu=2 * 0.3)[-1]
    toy.assert_close(play(UNMIXED, mu=0.3, nu=9.0)[-1].server, same.server, 1e-6)


def test_superfed_at_lambda_zero_is_fedavg(averaged, monkeypatch):
    place = "pfljax.algorithms.interpolation.superfed.draw_lambda"
    monkeypatch.setattr(place, lambda key, task, mixing: 0.0)
    method = superfed(TASK, LOCAL, start=0.0, mu=0.0, nu=0.0, rounds=3)
    toy.assert_close(last(method).server, averaged.server, 1e-6)


def test_superfed_at_lambda_zero_with_a_pull_is_fedprox(monkeypatch):
    place = "pfljax.algorithms.interpolation.superfed.draw_lambda"
    monkeypatch.setattr(place, lambda key, task, mixing: 0.0)
    same = play(fedprox, mu=2 * 0.3)[-1]
    method = superfed(TASK, LOCAL, start=0.0, mu=0.3, nu=0.0, rounds=3)
    toy.assert_close(last(method).server, same.server, 1e-6)


def test_superfed_at_lambda_one_moves_the_server_by_nothing(monkeypatch):
    """By plain SGD from w, where the pull is zero; v trains alone."""
    place = "pfljax.algorithms.interpolation.superfed.draw_lambda"
    monkeypatch.setattr(place, lambda key, task, mixing: 1.0)
    method = superfed(TASK, SGD, start=0.0, mu=0.3, nu=0.0, rounds=3)
    first, *_, end = toy.run_rounds(
        method, TASK, SGD, toy.noisy_clients(), cohort=COHORT
    )[0]
    toy.assert_same(first.server, end.server)
    moved = toy.flat(end.clients.v) - toy.flat(first.clients.v)
    assert (np.abs(moved).max(1) > 1e-2).sum() >= COHORT


def test_fedprox_whose_pull_goes_all_the_way_is_one_step_from_w():
    """rate mu = 1: a step from p ends at w - rate grad f(p)."""
    local, mu = toy.full_batch(epochs=2), 1 / toy.RATE
    w, k = np.array([1.0, -2, 3]), 2
    data, key = toy.one(toy.quadratic_clients(), k), jax.random.key(0)
    turn = toy.turn(key, 0, 2)
    method = fedprox(TASK, local, mu=mu)
    _, found, _ = method.train(turn, toy.unflat(w), (), data)
    middle = w - toy.RATE * toy.gradient(k, w)
    wanted = w - toy.RATE * toy.gradient(k, middle)
    np.testing.assert_allclose(toy.flat(found), wanted, rtol=1e-5, atol=1e-5)


def test_superfed_layers_of_one_module_mix_as_the_model():
    """Both mix by one number, drawn from the same key."""
    task = TASK._replace(modules=dict.fromkeys(TASK.modules, 0), num_modules=1)
    options = {"start": 0.0, "nu": 1.0, "rounds": 3}
    model, layer = (
        last(superfed(task, LOCAL, mixing=m, **options), task)
        for m in ("model", "layer")
    )
    toy.assert_same(model, layer)


@pytest.mark.parametrize("variant", ["first_order", "hessian", "hessian_free"])
def test_per_fedavg_without_inner_step_is_uniform_fedavg(variant, averaged_uniformly):
    method = per_fedavg(TASK, LOCAL, inner_lr=0.0, variant=variant)
    toy.assert_close(last(method).server, averaged_uniformly.server)


def test_hessian_free_is_exact_on_quadratics():
    exact, free = (
        last(per_fedavg(TASK, LOCAL, inner_lr=0.2, variant=v, delta=0.5)).server
        for v in ("hessian", "hessian_free")
    )
    toy.assert_close(exact, free)


def test_reptile_that_goes_all_the_way_is_uniform_fedavg(averaged_uniformly):
    state = last(reptile(TASK, LOCAL))
    toy.assert_close(state.server.w, averaged_uniformly.server, 1e-6)


def test_pfedhn_of_a_constant_hypernetwork_is_uniform_fedavg(averaged_uniformly):
    """Of z = 0 and no kernel, where the bias alone has a gradient."""
    method = pfedhn(TASK, LOCAL, server_lr=1.0, server_optimizer="sgd")

    def init(params, num_clients, key):
        server = method.init(params, num_clients, key)
        h = server.learned.w.h
        nothing = tree.zeros((h.layers, h.kernel))
        constant = h._replace(layers=nothing[0], kernel=nothing[1])
        learned = server.learned.w._replace(h=constant)
        return server._replace(learned=server.learned._replace(w=learned))

    found = last(method._replace(init=init)).server.learned.w.h.bias
    toy.assert_close(found, averaged_uniformly.server, 1e-6)


@pytest.mark.parametrize("isotropic", [False, True])
def test_aruba_whose_rates_stay_is_uniform_fedavg(isotropic, averaged_uniformly):
    """Beside a large zeta, what clients add to b and g is nothing."""
    method = aruba(TASK, LOCAL, zeta=1e5, isotropic=isotropic)
    toy.assert_close(last(method).server.phi, averaged_uniformly.server, 1e-5)


def test_fedmeta_without_inner_step_is_gradient_descent_on_query_examples():
    """The query set is the second half of each client's examples; all count alike."""
    method = fedmeta(TASK, SGD, inner_lr=0.0, support=0.5)
    before, after = toy.run_rounds(method, TASK, SGD, toy.noisy_clients(), rounds=1)[0]
    x = np.split(np.asarray(toy.noisy_clients().examples.x), np.cumsum(toy.SIZES)[:-1])
    query = [examples[round(len(examples) / 2) :, 1:].mean(0) for examples in x]
    w = toy.flat(before.server.w.theta)
    wanted = w - 0.1 * (w - np.mean(query, axis=0))
    np.testing.assert_allclose(toy.flat(after.server.w.theta), wanted, atol=1e-6)


def test_ifca_of_one_cluster_is_uniform_fedavg(averaged_uniformly):
    models = last(ifca(TASK, LOCAL, clusters=1)).server
    toy.assert_close(jax.tree.map(lambda a: a[0], models), averaged_uniformly.server)


def test_hypcluster_of_one_cluster_is_fedavg(averaged):
    models = last(hypcluster(TASK, LOCAL, clusters=1)).server.w
    toy.assert_close(jax.tree.map(lambda a: a[0], models), averaged.server, 1e-6)


def test_fedem_of_one_component_is_fedavg():
    """Of a perceptron, for its mixture needs logits."""
    task, (train, _) = toy.classifier(), toy.ragged()
    models, w = (
        toy.run_rounds(each, task, LOCAL, train, rounds=2, cohort=COHORT)[0][-1].server
        for each in (fedem(task, LOCAL, components=1), fedavg(task, LOCAL))
    )
    toy.assert_close(jax.tree.map(lambda leaf: leaf[0], models), w, 1e-6)


def test_ifca_of_equal_models_trains_the_first_and_leaves_the_others():
    task = TASK._replace(init=lambda key: toy.unflat(jnp.asarray([0.5, -1.0, 2.0])))
    states, _ = toy.run_rounds(
        ifca(task, SGD, clusters=3), task, SGD, toy.noisy_clients(), 1, COHORT
    )
    before, after = (toy.flat(s.server) for s in states)
    np.testing.assert_array_equal(after[1:], before[1:])
    assert np.abs(after[0] - before[0]).max() > 1e-2


def test_scaffold_starts_as_uniform_fedavg():
    first = last(scaffold(TASK, LOCAL), rounds=1).server.x
    toy.assert_close(first, reference(uniform)[1].server)


def test_scaffold_of_one_client_is_never_corrected():
    data = toy.noisy_clients()
    data = data._replace(offset=data.offset[1:2], size=data.size[1:2])
    corrected, _ = toy.run_rounds(scaffold(TASK, SGD), TASK, SGD, data)
    plain, _ = toy.run_rounds(fedavg(TASK, SGD), TASK, SGD, data)
    toy.assert_close(corrected[-1].server.x, plain[-1].server)


@pytest.mark.parametrize("mu", [0.0, 0.4])
def test_fednova_of_equal_steps_is_fedprox(mu):
    steps = LOCAL._replace(epochs=None, steps=7)
    found, wanted = (play(each, steps, mu=mu)[-1] for each in (fednova, fedprox))
    toy.assert_close(found.server, wanted.server, 1e-6)


def test_adaptive_fedprox_whose_mu_stays_is_fedprox():
    found = last(fedprox_adaptive(TASK, LOCAL, mu=0.4, step=0.0)).server.w
    toy.assert_close(found, play(fedprox, mu=0.4)[-1].server, 1e-6)


def test_fednova_of_unequal_steps_is_no_fedavg(averaged):
    moved = last(fednova(TASK, LOCAL)).server
    assert not np.allclose(toy.flat(moved), toy.flat(averaged.server), atol=1e-3)


def test_fednova_rests_where_steps_do_not_weigh():
    """With one step per example FedAvg counts a client's size twice, FedNova once."""
    local = toy.full_batch(epochs=1)._replace(batch_size=1)
    moved = 1 - (1 - toy.RATE * toy.A) ** toy.COUNTS
    for method, weight in ((fedavg, toy.COUNTS * moved), (fednova, moved)):
        found = fixed_point(method(TASK, local), local)
        np.testing.assert_allclose(found, between(weight), atol=1e-4)


def test_feddyn_of_alpha_zero_goes_twice_as_far_as_uniform_fedavg_at_first():
    before, after, *_ = play(feddyn, cohort=CLIENTS, alpha=0.0)
    mean = reference(uniform, cohort=CLIENTS)[1].server
    change = tree.sub(mean, before.server.w)
    toy.assert_close(after.server.w, tree.axpy(2, change, before.server.w), 1e-5)
    toy.assert_close(after.server.h, tree.scale(change, -1), 1e-5)


def test_feddyn_starts_as_fedprox():
    everybody = {"cohort": CLIENTS, "rounds": 1, "local": SGD}
    prox = fedprox(TASK, SGD, mu=0.4)
    prox = prox._replace(aggregate=aggregation.averaging("uniform"))
    server = last(feddyn(TASK, SGD, alpha=0.4), **everybody).server
    toy.assert_close(tree.add(server.w, server.h), last(prox, **everybody).server, 1e-5)


@pytest.mark.parametrize("method", [fedavg, ifca], ids=["fedavg", "ifca gradients"])
def test_one_full_batch_step_of_all_is_gradient_descent(method):
    train, step = toy.quadratic_clients(), toy.full_batch(epochs=1)
    options = {"clusters": 1, "averaging": "gradients"} if method is ifca else {}
    states, _ = toy.run_rounds(method(TASK, step, **options), TASK, step, train, 1)
    share = np.full(4, 1 / 4) if method is ifca else toy.COUNTS / toy.COUNTS.sum()
    models = [s.server for s in states]
    before, after = (toy.flat(m).reshape(3) for m in models)
    slope = sum(share[k] * toy.gradient(k, before) for k in range(4))
    np.testing.assert_allclose(after, before - toy.RATE * slope, rtol=1e-5, atol=1e-6)


def test_drop_equals_keep_without_stragglers(averaged):
    everybody = selection.uniform(COHORT, CLIENTS)
    for drop in (True, False):
        select = selection.stragglers(everybody, 0.0, LOCAL.epochs, drop)
        toy.assert_same(last(fedavg(TASK, LOCAL), select=select), averaged)


def fixed_point(algorithm, local):
    """Where the server's model comes to rest on the quadratic clients, f32[3]."""
    setting = engine.Setting(algorithm, local, selection.uniform(4, 4))
    state = engine.init(setting, TASK, 4, jax.random.key(0))
    program = engine.compile_rounds(setting, 500)
    state, _ = program(state, toy.quadratic_clients(), 500)
    return toy.flat(algorithm.server_model(state.server))


def between(weight):
    """Weighted mean of the clients' minima."""
    return weight @ toy.B / weight.sum()


INNER = 0.2
LEFT = 1 - INNER * toy.A  # what an inner step leaves of the distance to b_k
MOVED = 1 - (1 - toy.RATE * toy.A) ** 3  # what three local steps make of it


@pytest.mark.parametrize(
    ("factory", "options", "epochs", "weight"),
    [
        (fedavg, {}, 3, toy.COUNTS * MOVED),
        (scaffold, {}, 3, toy.A),
        (scaffold, {"option": "I"}, 3, toy.A),
        (feddyn, {"alpha": 0.4}, 3, toy.A),
        (per_fedavg, {"variant": "first_order"}, 1, toy.A * LEFT),
        (per_fedavg, {"variant": "hessian"}, 1, toy.A * LEFT**2),
        (per_fedavg, {"variant": "hessian_free", "delta": 0.5}, 1, toy.A * LEFT**2),
    ],
)
def test_fixed_points_on_quadratics(factory, options, epochs, weight):
    if factory is per_fedavg:
        options = options | {"inner_lr": INNER}
    local = toy.full_batch(epochs)
    found = fixed_point(factory(TASK, local, **options), local)
    np.testing.assert_allclose(found, between(weight), atol=1e-4)


@pytest.mark.parametrize("method", ["fedprox", "ditto"])
def test_proximal_solution_on_quadratics(method):
    """Many local steps find  (a b + mu w) / (a + mu)."""
    mu, local, train = 0.6, toy.full_batch(), toy.quadratic_clients()
    build = {
        "fedprox": fedprox(TASK, local, mu=mu),
        "ditto": ditto(TASK, local, lam=mu),
    }
    w = toy.unflat([1.0, 2, 3])
    turn = toy.turn(jax.random.key(0), 0, 200)

    def solve(offset, size):
        data = ClientData(train.examples, offset, size)
        client = build[method].init_client(w, jnp.int32(0), turn.key)
        client, upload, _ = build[method].train(turn, w, client, data)
        return client if method == "ditto" else upload

    found = toy.flat(jax.vmap(solve)(train.offset, train.size))
    expected = (toy.A[:, None] * toy.B + mu * toy.flat(w)) / (toy.A[:, None] + mu)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_methods_of_ranks_are_fedavg_without_adapters(averaged, averaged_uniformly):
    toy.assert_close(play(hetlora)[-1].server, averaged_uniformly.server)
    for method in (flexlora, flora):
        toy.assert_close(play(method)[-1].server, averaged.server)
