import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import tiny
from pfljax import models
from pfljax.core.components import Component
from pfljax.core.types import Batch
from pfljax.models import augmentation
from pfljax.simulate import begin

KEY = jax.random.key(0)
OWN = """
def same(x, key, *, times: int = 1):
    return x

def short(x, key):
    return x[:, 1:]
"""


def images():
    drawn = np.random.default_rng(0).integers(1, 256, (200, 5, 6, 2))
    return jnp.asarray(drawn, jnp.uint8)


def test_a_crop_is_one_of_all_windows_of_the_padded_image():
    x = images()
    cropped = np.asarray(augmentation.crop(x, KEY, pad=1))
    assert cropped.dtype == np.uint8
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.stack(
        [padded[:, i : i + 5, j : j + 6] for i in range(3) for j in range(3)], 1
    )
    fits = (windows == cropped[:, None]).all((2, 3, 4))
    np.testing.assert_array_equal(fits.sum(1), 1)
    assert fits.any(0).all()


def test_half_of_the_images_are_mirrored():
    x = np.asarray(images())
    flipped = np.asarray(augmentation.flip(images(), KEY))
    same = (flipped == x).all((1, 2, 3))
    mirrored = (flipped == x[:, :, ::-1]).all((1, 2, 3))
    assert (same ^ mirrored).all()
    assert 70 < mirrored.sum() < 130


def test_a_square_is_cut_out_and_the_rest_stays():
    x = np.asarray(images())
    cut = np.asarray(augmentation.cutout(images(), KEY, size=3))
    assert cut.dtype == np.uint8
    holes = (cut == 0).all(3)
    np.testing.assert_array_equal(cut, np.where(holes[..., None], 0, x))
    heights, widths = holes.any(2).sum(1), holes.any(1).sum(1)
    np.testing.assert_array_equal(holes.sum((1, 2)), heights * widths)
    assert {*heights} == {*widths} == {2, 3}


def test_training_alone_is_augmented_and_dropout_keeps_its_key(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    body = nn.Sequential([lambda x: x.reshape(len(x), -1), models.Dropout(0.5)])
    plain = models.task(models.Network(body, nn.Dense(3)), (5, 6, 2))
    params, batch = plain.init(KEY), Batch.full(images())
    choices = {
        "same": Component(f"{tmp_path}/own.py:same", {"times": 2}),
        "flip": Component("flip"),
    }
    for name, choice in choices.items():
        function = augmentation.make([choice], (5, 6, 2))
        task = augmentation.augment(plain, function)
        for output in ("loss", "logits", "features"):
            ours, theirs = getattr(task, output), getattr(plain, output)
            trained = np.array_equal(
                ours(params, batch, KEY), theirs(params, batch, KEY)
            )
            assert trained == (name == "same")
            np.testing.assert_array_equal(
                ours(params, batch, None), theirs(params, batch, None)
            )


@pytest.mark.parametrize(
    "augment",
    [
        "crop",
        "flip",
        "cutout",
        "spin",
        pytest.param("own.py:short", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_augmented(augment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    job = tiny.TINY.replace(dataset="synthetic:clients=6", augment=augment)
    with pytest.raises(ValueError, match="augment") as error:
        begin.check_method(job, None, None)
    assert "\n" not in str(error.value)
