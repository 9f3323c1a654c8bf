"""The command says nothing about its progress, however slow the machine is."""

import pytest

from pfljax.landscape.kinds import blocks


@pytest.fixture(scope="session", autouse=True)
def silence():
    patch = pytest.MonkeyPatch()
    patch.setattr(blocks, "SECONDS", 1e9)
    yield
    patch.undo()
