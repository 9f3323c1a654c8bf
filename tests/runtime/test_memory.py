"""The most memory that a run held, and whose it was."""

import jax
import numpy as np
import pytest

from pfljax.runtime import memory


class Device:
    """TEST FIXTURE: a device with statistics, or without."""

    def __init__(self, stats):
        self.stats = stats

    def memory_stats(self):
        return self.stats


def test_a_device_that_keeps_no_count_leaves_it_to_the_process(monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: [Device(None)])
    before = memory.highest()
    assert before["peak_of"] == "process"
    held = np.ones(2**24)  # 128 MiB, touched
    after = memory.highest()["peak_bytes"]
    assert after >= before["peak_bytes"]
    assert after >= held.nbytes


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        ([{"peak_bytes_in_use": 5}, {"peak_bytes_in_use": 9}], 9),
        ([None, {"peak_bytes_in_use": 3}], 3),
    ],
)
def test_of_devices_the_fullest_counts(monkeypatch, stats, expected):
    monkeypatch.setattr(jax, "local_devices", lambda: list(map(Device, stats)))
    assert memory.highest() == {"peak_bytes": expected, "peak_of": "device"}


def test_nothing_is_reported_without_a_counter(monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: [Device({"bytes_in_use": 1})])
    monkeypatch.setattr(memory, "peak_bytes", lambda: None)
    assert memory.highest() == {}
