"""Resizes the images of a data set, or keeps fewer examples."""

import numpy as np

from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, renumber


def resize(arrays: Arrays, size: int | None) -> Arrays:
    """Resizes images to `size` x `size` pixels, bilinear as Pillow does.

    If `size` is None, the images stay as they are.
    """
    if size is None:
        return arrays
    from PIL import Image

    count, *_, channels = arrays.x.shape
    resized = np.empty((count, size, size, channels), np.uint8)
    for pixels, target in zip(arrays.x, resized, strict=True):
        image = Image.fromarray(pixels.squeeze())
        image = image.resize((size, size), Image.Resampling.BILINEAR)
        target[:] = np.asarray(image).reshape(target.shape)
    return arrays._replace(x=resized)


def thin(arrays: Arrays, every: int) -> Arrays:
    """Keeps each `every`-th example of each official split and natural client.

    Natural clients without an example left are dropped and the others are renumbered;
    all classes stay. The name of the result has the number, because the index of an
    example is its number among the examples kept.

    Raises:
        ValueError: `every` is no whole number from 1 to the number of examples.
    """
    if type(every) is not int or not 1 <= every <= len(arrays.y):
        raise ValueError(
            f"data set {arrays.name!r}: every is {every!r}; expected a whole number "
            f"from 1 to its {len(arrays.y)} examples"
        )
    if every == 1:
        return arrays
    # Sorted by split and client, each n-th example thins all of them alike.
    group = arrays.official.astype(np.int64)
    if arrays.client is not None:
        group += len(OFFICIAL_NAMES) * arrays.client
    left = np.sort(np.argsort(group, kind="stable")[::every])
    client, names = None, arrays.client_names
    if arrays.client is not None:
        client = renumber(arrays.client[left])
        names = names and tuple(names[k] for k in np.unique(arrays.client[left]))
    separator = "," if ":" in arrays.name else ":"
    return arrays._replace(
        x=arrays.x[left],
        y=arrays.y[left],
        client=client,
        client_names=names,
        groups={
            group: values._replace(number=values.number[left])
            for group, values in arrays.groups.items()
        },
        official=arrays.official[left],
        name=f"{arrays.name}{separator}every={every}",
    )
