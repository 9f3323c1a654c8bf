"""Small federations and models for the laws, and for tests of methods.

`ragged` has examples to classify. On the quadratic clients f_k(w) = a_k / 2 ||w -
b_k||^2 the results of methods are known in closed form.
"""

from functools import cache

import chex
import jax
import jax.numpy as jnp
import numpy as np

from pfljax import engine, models, selection
from pfljax.core import factories
from pfljax.core.types import ClientData, Cohort, Examples, Local, Task, Turn
from pfljax.engine.plan import round_key

BODY = 4 * 16  # bytes of the classifier's body
HEAD = 4 * 15  # and of its head
WHOLE = BODY + HEAD
LINEAR = 4 * 12  # of the linear model
SIZES = (3, 20, 7, 12, 5, 9, 16, 4)  # examples of each client
PUBLIC = 6  # examples of the server
A = np.array([0.5, 1.0, 2.0, 1.5])  # curvature of each quadratic client
B = np.array([[1.0, 0, 2], [-1, 2, 0.5], [0.5, -2, 1], [3, 1, -1]])  # its minimum
COUNTS = np.array([2, 5, 3, 4])  # its examples
RATE = 0.1


def deal(x, y, sizes, held_out=0):
    """(train, test), with a client's `held_out` test examples behind the others."""
    sizes = np.asarray(sizes)
    lengths = sizes + held_out
    offset = np.cumsum(lengths) - lengths
    # One pool for both, so that a law sees whether a method reads test examples.
    pool = Examples(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32))

    def part(offset, size):
        span = jnp.asarray(offset, jnp.int32), jnp.asarray(size, jnp.int32)
        return ClientData(pool, *span)

    train = part(offset, sizes)
    test = part(offset + sizes, np.full_like(sizes, held_out))
    return train, test


def one(data, k):
    """The data of client k alone."""
    return ClientData(data.examples, data.offset[k], data.size[k])


def ragged(held_out=2):
    """(train, test) of 8 clients with 3 to 20 examples [3] of 3 classes."""
    rng = np.random.default_rng(0)
    count = sum(SIZES) + held_out * len(SIZES)
    x = rng.normal(size=(count, 3))
    y = rng.integers(0, 3, count)
    return deal(x, y, SIZES, held_out)


def public():
    """The examples of the server, in a pool of their own."""
    rng = np.random.default_rng(1)
    pool = Examples(
        x=jnp.asarray(rng.normal(size=(PUBLIC, 3)), jnp.float32),
        y=jnp.asarray(rng.integers(0, 3, PUBLIC), jnp.int32),
    )
    return ClientData(examples=pool, offset=jnp.int32(0), size=jnp.int32(PUBLIC))


def run_options(factory, rounds):
    """The options of a method that are filled in by a run of so many rounds."""
    return factories.select_context(
        factory,
        rounds=rounds,
        max_examples=max(SIZES),
        num_public=PUBLIC,
        num_clients=len(SIZES),
    )


@cache
def classifier():
    """A perceptron with 16 parameters in its body and 15 in its head."""
    # One record for all callers: jitted functions of a task are cached by identity.
    model = models.mlp(3, hidden=(4,))
    return traced_once(models.task(model, (3,)))


@cache
def regression():
    """The classifier's network with one real output."""
    model = models.mlp(1, hidden=(4,))
    return traced_once(models.task(model, (3,), kind="regression"))


@cache
def linear():
    """Logistic regression with 12 parameters, all in its head."""
    return traced_once(models.task(models.logistic(3), (3,)))


def traced_once(task):
    """The task, with a model that is traced once for all methods and programs.

    Flax takes most of the time in which a small program is traced.
    """
    functions = ("init", "loss", "logits", "features", "predict", "head")
    jitted = {name: jax.jit(getattr(task, name), inline=True) for name in functions}
    return task._replace(**jitted)


def flat(params):
    """A quadratic's parameters as one NumPy vector."""
    return np.concatenate(jax.tree.leaves(params), -1)


def unflat(vector):
    """The parameters of the quadratic from a vector."""
    vector = jnp.asarray(vector, jnp.float32)
    return {"body": vector[..., :2], "head": vector[..., 2:]}


def quadratic():
    """The task  mean of a / 2 ||w - b||^2  over examples x = (a, b)."""

    def init(key):
        return unflat(jax.random.normal(key, (3,)))

    def vector(params):
        return jnp.concatenate([params["body"], params["head"]])

    def loss(params, batch, key):
        curvature = batch.x[:, 0]
        minimum = batch.x[:, 1:]
        square = jnp.sum((vector(params) - minimum) ** 2, 1)
        losses = curvature * square / 2
        count = jnp.maximum(batch.mask.sum(), 1)
        return jnp.sum(batch.mask * losses) / count

    # It classifies nothing; its "logits" only have to depend on all parameters.
    def logits(params, batch, key):
        return batch.x[:, 1:] * vector(params)

    def features(params, batch, key):
        return batch.x[:, 1:3] * params["body"]

    return Task(
        init=init,
        loss=loss,
        logits=logits,
        features=features,
        predict=lambda params, batch: logits(params, batch, None),
        head=lambda params, z: z,
        groups={"body": "body", "head": "head"},
        modules={"body": 0, "head": 1},
        num_modules=2,
        num_classes=3,
    )


def quadratic_clients():
    """4 clients; all examples of client k are (a_k, b_k)."""
    x = np.repeat(np.c_[A, B], COUNTS, axis=0)
    y = np.zeros(len(x))
    train, _ = deal(x, y, COUNTS)
    return train


def noisy_clients():
    """8 ragged clients; examples have curvature 1 and differ in b."""
    count = sum(SIZES)
    b = np.random.default_rng(1).normal(size=(count, 3))
    x = np.c_[np.ones(count), b]
    y = np.zeros(count)
    train, _ = deal(x, y, SIZES)
    return train


def full_batch(epochs=3, rate=RATE):
    """Local training by `epochs` steps of gradient descent."""
    return Local(rate, batch_size=32, epochs=epochs)


def run_rounds(
    algorithm, task, local, train, rounds=3, cohort=None, select=None, public=None
):
    """The states after rounds 0 .. `rounds`, and the setting."""
    count = len(train.size)
    setting = engine.Setting(
        algorithm=algorithm,
        local=local,
        selection=select or selection.uniform(cohort or count, count),
    )

    # `train` is an argument, since XLA would compute with a constant at compile time.
    @jax.jit
    def step(state, train):
        after, _ = engine.one_round(setting, state, train, public=public)
        return after

    states = [engine.init(setting, task, count, jax.random.key(0))]
    for _ in range(rounds):
        states.append(step(states[-1], train))
    return states, setting


def run_quadratic(factory, rounds=3, cohort=3, epochs=3, batch_size=32, **options):
    """(states, cohort of each round) of a method on the quadratic clients."""
    task = quadratic()
    local = full_batch(epochs)._replace(batch_size=batch_size)
    algorithm = factory(task, local, **options)
    train = quadratic_clients()
    states, _ = run_rounds(algorithm, task, local, train, rounds, cohort)
    drawn = [np.asarray(state.cohort) for state in states[1:]]
    return states, drawn


def gradient(k, w):
    """Gradient of quadratic client k."""
    return A[k] * (w - B[k])


def descend(w, gradient, steps=3, rate=RATE):
    """`steps` of gradient descent from w."""
    for _ in range(steps):
        # Not in place: `w` belongs to the caller.
        w = w - rate * gradient(w)
    return w


def turn(key=None, round_=0, steps=1, client_id=0, num_clients=4):
    """A turn of one client; the server has no examples."""
    # One example without an owner, since an empty pool cannot be indexed.
    pool = Examples(x=jnp.zeros((1, 4)), y=jnp.zeros(1, jnp.int32))
    nothing = ClientData(pool, offset=jnp.int32(0), size=jnp.int32(0))
    return Turn(
        key=jax.random.key(0) if key is None else key,
        round=jnp.int32(round_),
        steps=jnp.int32(steps),
        id=jnp.int32(client_id),
        num_clients=num_clients,
        public=nothing,
    )


def cohort(mask, num_clients=4, round_=0, weight=None):
    """A cohort of the first clients; those with `mask` [M] 0 do not report."""
    mask = jnp.asarray(mask, jnp.float32)
    ones = jnp.ones(len(mask))
    return Cohort(
        ids=jnp.arange(len(mask)),
        weight=ones if weight is None else jnp.asarray(weight),
        mask=mask,
        draws=ones,
        num_clients=num_clients,
        round=jnp.int32(round_),
        key=jax.random.key(0),
        public=turn().public,
    )


def turn_key(state, k):
    """The key of client k in the coming round."""
    return engine.client_key(round_key(state.key, state.round), k)


def copy(state):
    """A copy, for a function that donates its argument."""
    return jax.tree.map(lambda leaf: leaf.copy(), state)


def words(tree):
    """The tree in NumPy, with random keys as integers."""

    def to_numpy(leaf):
        leaf = jnp.asarray(leaf)
        # NumPy has no keys.
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return np.asarray(leaf)

    return jax.tree.map(to_numpy, tree)


def arrays(tree):
    """The leaves in NumPy, with random keys as integers."""
    return jax.tree.leaves(words(tree))


def assert_same(a, b):
    """Two trees are equal bit for bit."""
    chex.assert_trees_all_equal(words(a), words(b))


def assert_close(a, b, tolerance=1e-5):
    """Two trees are equal up to the order of sums."""
    chex.assert_trees_all_close(words(a), words(b), rtol=tolerance, atol=tolerance)
