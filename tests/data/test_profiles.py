"""Device profiles: their seconds, their named sets, and what they refuse."""

import numpy as np
import pytest

from pfljax.core.components import parse
from pfljax.data import profiles


def made(text, clients=10):
    return profiles.make(parse(text), clients)


def test_seconds_are_those_of_both_ways_and_of_the_steps():
    devices = made("equal:step=0.5,down=100,up=50", 3)
    steps = np.array([1, 2, 4])
    found = profiles.expected_seconds(devices, steps, 200, 100)
    np.testing.assert_array_equal(found, [4.5, 5.0, 6.0])


def test_speed_groups_go_by_client_number_or_are_drawn():
    by_number = made("speed_groups:step=1", 7)
    speeds = np.array([4, 2, 1, 0.5, 0.1, 4, 2])
    np.testing.assert_allclose(by_number.step, 1 / speeds)
    drawn = made("speed_groups:step=1,drawn=True,seed=3", 5000)
    values, counts = np.unique(drawn.step, return_counts=True)
    np.testing.assert_allclose(values, sorted(1 / np.array(profiles.SPEEDS)))
    assert (abs(counts / 5000 - 0.2) < 0.03).all()
    again = made("speed_groups:step=1,drawn=True,seed=4", 5000)
    assert (drawn.step != again.step).any()


def test_lognormal_factors_have_median_one_and_their_sigma():
    devices = made("lognormal:step=2,sigma=0.7,seed=1", 20_000)
    logs = np.log(devices.step / 2)
    assert abs(np.median(logs)) < 0.02
    assert abs(logs.std() - 0.7) < 0.02
    # One link a device: both ways are slow or fast together.
    np.testing.assert_allclose(devices.down / profiles.DOWN, devices.up / profiles.UP)
    assert abs(np.corrcoef(logs, np.log(devices.up))[0, 1]) < 0.03
    assert (made("lognormal:sigma=0", 4).step == profiles.STEP).all()


def saved(folder, **arrays):
    path = folder / "devices.npz"
    np.savez(path, **arrays)
    return f"file:path={path}"


def test_a_file_of_arrays(tmp_path):
    text = saved(tmp_path, step=[1.0, 2.0], down=5.0, up=[3.0, 4.0], jitter=0.5)
    devices = made(text, 2)
    np.testing.assert_array_equal(devices.down, [5, 5])
    np.testing.assert_array_equal(devices.up, [3, 4])
    np.testing.assert_array_equal(devices.jitter, [0.5, 0.5])
    np.testing.assert_array_equal(devices.availability, [1, 1])


RIGHT = {"step": [1.0, 1.0], "down": 1.0, "up": 1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": [1.0, 1.0, 1.0]}, "step is no number, and not one for each of 2 cl"),
        ({"step": [1.0, 0.0]}, "step is 0 at client 1; expected a number from 1.2e-38"),
        ({"up": np.nan}, "up is nan at client 0; expected a number from"),
        ({"availability": 1.5}, "availability is 1.5 at client 0; .* to 1"),
        ({"speed": 1.0}, "it has speed, .* no other arrays than step, down, up"),
    ],
)
def test_what_a_file_may_not_hold(tmp_path, change, message):
    with pytest.raises(ValueError, match=message) as error:
        made(saved(tmp_path, **(RIGHT | change)), 2)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speed_group", "'speed_group'"),
        ("equal:step=0", "profile 'equal': step is 0; expected a finite number > 0"),
        ("equal:speed=1", "unknown parameter 'speed'"),
        ("lognormal:sigma=500", "profile 'lognormal': step is .* expected a number"),
        ("file", "profile 'file' needs the parameter 'path'"),
        ("file:path=nowhere.npz", "nowhere.npz cannot be read .*write one by numpy"),
    ],
)
def test_a_choice_that_is_wrong_is_refused_in_one_line(text, message):
    with pytest.raises(ValueError, match=message) as error:
        made(text)
    assert "\n" not in str(error.value)
