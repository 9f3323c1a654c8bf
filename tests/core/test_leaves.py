"""Names of leaves, for `--freeze` and for the private leaves of `partial`."""

import pytest
from flax import linen as nn

from pfljax import models
from pfljax.core import leaves, tree
from pfljax.models.layers import BatchNorm, GroupNorm


class Shortcut(nn.Module):
    """A layer that is no normalisation, although it has a scale."""

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        return x * scale + nn.Dense(x.shape[-1])(x @ self.param("turn", EYE, (4, 4)))


def EYE(key, shape):  # noqa: N802, as Flax's initializers
    return nn.initializers.orthogonal()(key, shape)


@pytest.fixture(scope="module")
def task():
    body = nn.Sequential(
        [
            nn.Embed(7, 4),
            nn.BatchNorm(use_scale=False, name="downsample_1"),
            nn.Sequential([nn.LayerNorm(), nn.RMSNorm(), Shortcut()]),
        ]
    )
    return models.task(models.Network(body, nn.Dense(3)), (4,))


def chosen(task, *names):
    """The paths of the leaves that the names stand for."""
    choice = leaves.choose(task, leaves.patterns("it", names, [task]))
    return {path for path, yes in tree.paths(choice).items() if yes}


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("head", {"head/bias", "head/kernel"}),
        ("head/b*", {"head/bias"}),
        ("*/Dense_0/bias", {"body/layers_2/layers_2/Dense_0/bias"}),
        (
            "Dense_0",
            {f"body/layers_2/layers_2/Dense_0/{n}" for n in ("bias", "kernel")},
        ),
        ("embedding", {"body/layers_0/embedding"}),
    ],
)
def test_names_of_leaves_of_modules_and_of_paths(task, name, kept):
    assert chosen(task, name) == kept


def test_normalisation_is_found_by_its_structure(task):
    norm = "body/layers_1", "body/layers_2/layers_0", "body/layers_2/layers_1"
    wanted = {p for p in tree.paths(task.groups) if p.startswith(norm)}
    assert chosen(task, "norm") == wanted
    assert len(wanted) == 3 + 2 + 1
    images = models.Network(
        nn.Sequential([nn.Conv(8, (3, 3)), BatchNorm()]), GroupNorm()
    )
    assert len(chosen(models.task(images, (4, 4, 1)), "norm")) == 4


def test_several_names_are_one_choice(task):
    both = chosen(task, "head", "norm")
    assert both == chosen(task, "head") | chosen(task, "norm")
