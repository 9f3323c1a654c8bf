"""What a checkpoint says of itself: whose it is, of which round, and its checksums."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pfljax.runtime import documents
from pfljax.runtime.files import CheckpointError

FORMAT = 3  # of the checkpoint; a reader takes 2 as well


# With clients of several architectures: of each leaf where they differ, and by store.
Rows: TypeAlias = int | list[int] | None
Checksum: TypeAlias = int | list[int] | None


class DamageError(ValueError):
    """A checkpoint that reads, but is not what was saved."""


class Meta(NamedTuple):
    """The JSON part of a checkpoint, without format and checksum of its own."""

    round: int
    config: str  # digest of the run's config
    log: int | None  # checksum of the run's log up to this round
    clients: Checksum  # that of the client states in a store; None without one
    crc: int | None  # that of the state, in one of two ways
    sum: int | None
    rows: Rows  # of client states in the state
    devices: int  # that shared them


FORM: dict[str, Any] = {
    "format": int,
    "round": int,
    "config": str,
    "log": (int, None),
    "clients": (int, None),
    "crc": (int, None),
    "sum": (int, None),
    "rows": (int, None),
    "devices": int,
}


def to_json(meta: Meta) -> dict[str, Any]:
    """The JSON part, its checksum with it."""
    content = {"format": FORMAT, **meta._asdict()}
    return {**content, documents.CHECKSUM: documents.crc(content)}


def from_json(path: Path, content: Mapping[str, Any]) -> Meta:
    """What the JSON part of the checkpoint `path` says.

    Raises:
      CheckpointError: it is of another format.
      DamageError: it is not what was written, or of another round than its name.
    """
    content = dict(content)
    if content.get("format") == 1:
        raise CheckpointError(
            f"{path} is of an older pfljax; finish the run with that version, or run "
            "it again with another --out"
        )
    checksum = content.pop(documents.CHECKSUM, None)
    if checksum != documents.crc(content):
        raise DamageError("what it says of itself does not match its checksum")
    # Only what matches its checksum tells of another format, and not of damage.
    version = content.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise CheckpointError(
            f"{path} has format {version}, this pfljax reads format "
            f"{FORMAT}; upgrade pfljax"
        )
    form = dict(FORM)
    for name in ("rows", "clients"):
        if isinstance(content.get(name), list):
            form[name] = [int]
    wrong = documents.misfit(content, form)
    if wrong:
        raise DamageError(wrong)
    if str(content["round"]) != path.name:
        raise DamageError(f"it is of round {content['round']}")
    del content["format"]
    return Meta(**content)
