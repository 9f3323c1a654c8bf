"""Lines to another run are between clients that have the very same examples."""

from types import SimpleNamespace

import pytest

from pfljax.landscape.kinds import ends
from pfljax.runs import folder

ABOUT = {
    "num_classes": 2, "sizes": {"train": [1, 1]}, "class_histogram": [[1, 0], [0, 1]],
    "sha256": "abc", "clients": [0, 1], "x_crc32": 1, "labels_crc32": 2,
}  # fmt: skip


def finished(place, **changes):
    place.mkdir()
    folder.write_partition(place, ABOUT | changes, {})
    manifest = ABOUT | changes
    federation = SimpleNamespace(manifest=manifest, num_clients=2)
    return SimpleNamespace(path=place, federation=federation)


@pytest.mark.parametrize("changes", [{"x_crc32": 3}, {"clients": [0, 2]}])
def test_runs_with_other_examples_are_refused(changes, tmp_path):
    run = finished(tmp_path / "a")
    ends._check_same_clients(run, finished(tmp_path / "b"))
    with pytest.raises(ValueError, match="their examples differ; choose runs"):
        ends._check_same_clients(run, finished(tmp_path / "c", **changes))
