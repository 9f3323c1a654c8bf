"""The pictures that `pfljax landscape` has put into run folders."""

from collections.abc import Sequence
from pathlib import Path

from pfljax.report.groups import Group
from pfljax.report.html import CSS_PIXELS, Picture
from pfljax.report.style import DPI

MOST_BYTES = 3_000_000  # of PNG in a comparison; a page stays under 5 MB
CAPTIONS = {
    "line": "Test accuracy along the straight line between the two models of each "
    "client: the mean, and a band from the 10th to the 90th percentile of clients.",
    "other": "Test accuracy along the straight line from each client's personal model "
    "here (0) to its personal model of another run (1): the mean, and a band from the "
    "10th to the 90th percentile of clients.",
    "pairs": "Between the personal models of all pairs of clients: the barrier of the "
    "loss on the test data of both, and the cosine of the angle between parameters.",
    "plane": "Loss of all test data around the server's model, along two random "
    "directions normalised filter by filter.",
    "plane_surface": "The same plane as a surface.",
    "hessian": "Loss of all test data around the server's model, along the two leading "
    "eigenvectors of the training loss's Hessian, each a tenth as long as the model.",
    "hessian_surface": "The same plane as a surface.",
    "hessian_spectrum": "Density of the eigenvalues of the training loss's Hessian at "
    "the server's model; short lines: the two greatest.",
    "curvature": "How sharp each client's personal model is on its own training data: "
    "the greatest eigenvalue of the Hessian, its trace, and how much the loss rises "
    "within a ball of radius 0.05 (SAM), each from the least to the greatest.",
    "training": "Barriers on the straight line from the server's model of each kept "
    "round to its last one, on all test data.",
    "training_plane": "The server's way through the plane of its two principal "
    "directions: loss of all test data; marks are rounds.",
}


def read_landscapes(folder: Path) -> list[Picture]:
    """The landscapes in the folder of a run."""
    pictures = []
    for file in sorted((folder / "figures").glob("landscape_*.png")):
        kind = file.stem.removeprefix("landscape_")
        caption = CAPTIONS.get(kind, f"The {kind} of the run.")
        image = file.read_bytes()
        # The first field of the first chunk is the width in pixels.
        width = round(CSS_PIXELS * int.from_bytes(image[16:20], "big") / DPI)
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
