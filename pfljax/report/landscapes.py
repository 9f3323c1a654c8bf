"""The pictures that `pfljax landscape` has put into run folders."""

from collections.abc import Sequence
from pathlib import Path

from pfljax.report.html import CSS_PIXELS, Picture
from pfljax.report.seeds import Group
from pfljax.report.style import DPI

MOST_BYTES = 3_000_000  # of PNG in a comparison; a page stays under 5 MB


def read_landscapes(folder: Path) -> list[Picture]:
    """The landscapes in the folder of a run."""
    from PIL import Image

    pictures = []
    for file in sorted((folder / "figures").glob("landscape_*.png")):
        with Image.open(file) as image:
            width = round(CSS_PIXELS * image.width / DPI)
            caption = image.info.get("Description", "")
        image = file.read_bytes()
        pictures.append(Picture(file.stem, image, "png", width, caption))
    return pictures


def first_landscapes(groups: Sequence[Group]) -> list[Picture]:
    """The landscapes of the first run of each method that has some.

    Kinds are left out if the page would become too large.
    """
    kinds: dict[str, list[Picture]] = {}
    for group in groups:
        for run in group.runs:
            pictures = read_landscapes(run.folder)
            for picture in pictures:
                head = f"{group.label}, seed {run.experiment.seed}."
                picture = picture._replace(caption=f"{head} {picture.caption}")
                kinds.setdefault(picture.name, []).append(picture)
            if pictures:
                break
    shown: list[Picture] = []
    # Whole kinds: the landscape of one method alone could not be compared.
    for pictures in kinds.values():
        if sum(len(picture.image) for picture in [*shown, *pictures]) > MOST_BYTES:
            break
        shown += pictures
    return shown
