"""The pictures that `pfljax landscape` has put into run folders."""

from collections.abc import Sequence
from pathlib import Path

from pfljax.report.captions import landscape_caption
from pfljax.report.groups import Group
from pfljax.report.html import Picture
from pfljax.report.read_files import read_png
from pfljax.report.style import CSS_PIXELS, DPI

MOST_BYTES = 3_000_000  # of PNG in a comparison; a page stays under 5 MB


def read_landscapes(folder: Path) -> list[Picture]:
    """Those in a folder of figures; a picture that is not whole is left out."""
    pictures = []
    for file in sorted(folder.glob("landscape_*.png")):
        png, pixels = read_png(file)
        if pixels:
            kind = file.stem.removeprefix("landscape_")
            picture = Picture(
                name=file.stem,
                png=png,
                width=round(CSS_PIXELS * pixels / DPI),
                caption=landscape_caption(kind),
            )
            pictures.append(picture)
    return pictures


def first_landscapes(groups: Sequence[Group]) -> list[Picture]:
    """Those of the first run of each method that has some, kind by kind.

    As many whole kinds as fit into a page.
    """
    kinds: dict[str, list[Picture]] = {}
    for group in groups:
        for picture in _of_first_run(group):
            kinds.setdefault(picture.name, []).append(picture)
    total = 0
    fitting = []
    for pictures in kinds.values():
        total += sum(len(picture.png) for picture in pictures)
        # Whole kinds: one method's alone could not be compared.
        if total > MOST_BYTES:
            break
        fitting += pictures
    return fitting


def _of_first_run(group: Group) -> list[Picture]:
    """The landscapes of the first run that has some, captions naming the run."""
    for run in group.runs:
        pictures = read_landscapes(run.folder / "figures")
        if not pictures:
            continue
        name = f"{group.label}, seed {run.config['seed']}"
        captioned = []
        for picture in pictures:
            caption = f"{name}. {picture.caption}"
            captioned.append(picture._replace(caption=caption))
        return captioned
    return []
