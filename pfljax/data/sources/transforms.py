"""Changes of a loaded data set: images of another size, fewer rows."""

import numpy as np

from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, renumbered


def resized(arrays: Arrays, size: int | None) -> Arrays:
    """Images of `size` x `size` pixels, bilinear as Pillow does; None: as they are.

    Raises:
        ValueError: for a size below 1.
    """
    if size is None:
        return arrays
    if size < 1:
        raise ValueError(f"size is {size}; expected at least 1 pixel")
    from PIL import Image

    num_rows, *_, channels = arrays.x.shape
    resized_x = np.empty((num_rows, size, size, channels), np.uint8)
    for pixels, target in zip(arrays.x, resized_x, strict=True):
        image = Image.fromarray(pixels.squeeze())
        image = image.resize((size, size), Image.Resampling.BILINEAR)
        target[:] = np.asarray(image).reshape(target.shape)
    return arrays._replace(x=resized_x)


def thinned(arrays: Arrays, every: int) -> Arrays:
    """Each `every`-th row, of the official splits and of natural clients alike.

    Natural clients of whom no row is left are gone, the others numbered anew; all
    classes are kept. The name says so: a row's number is its index in what is left.

    Raises:
        ValueError: `every` is no whole number from 1 to the number of rows.
    """
    if type(every) is not int or not 1 <= every <= len(arrays.y):
        raise ValueError(
            f"data set {arrays.name!r}: every is {every!r}; expected a whole number "
            f"from 1 to its {len(arrays.y)} rows"
        )
    if every == 1:
        return arrays
    # One number a pair of split and client: each n-th row of this order thins all.
    group = arrays.official.astype(np.int64)
    if arrays.client is not None:
        group += len(OFFICIAL_NAMES) * arrays.client
    kept = np.sort(np.argsort(group, kind="stable")[::every])
    client = None
    if arrays.client is not None:
        client = renumbered(arrays.client[kept])
    separator = "," if ":" in arrays.name else ":"
    return arrays._replace(
        x=arrays.x[kept],
        y=arrays.y[kept],
        client=client,
        official=arrays.official[kept],
        name=f"{arrays.name}{separator}every={every}",
    )
