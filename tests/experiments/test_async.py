"""The study of modes by devices: what is compared, and what its table says."""

import pytest

from pfljax.core.components import parse


@pytest.fixture
def modes(study):
    return study("async")


def test_all_modes_take_as_many_uploads(modes):
    uploads = set()
    for profile in modes.PROFILES:
        for mode in modes.MODES:
            experiment = modes.settings_of(mode, profile, modes.SMALL)
            participation = experiment
            each = participation.cohort
            if mode == "FedBuff":
                each = participation.mode.options["buffer"]
            uploads.add(participation.rounds * each)
            assert participation.profile == parse(modes.PROFILES[profile])
            assert (participation.deadline is not None) == (mode == "deadline")
    assert len(uploads) == 1


def test_the_deadline_is_met_by_as_many_as_it_says(modes):
    # Of speeds 4, 2, 1, .5, .1 seven tenths are those of .5 and more, but some.
    found = modes.deadline_of("speed_groups:step=1", modes.SMALL)
    sending = modes.BYTES / 2.5e6 + modes.BYTES / 6.25e5
    assert found == pytest.approx(1.1 * (modes.STEPS / 0.5 + sending), rel=1e-3)
