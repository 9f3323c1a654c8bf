import numpy as np
import pytest

from selecting import CLIENTS, made, play


@pytest.mark.parametrize("cohort", [1, 3, 8])
def test_clients_take_part_in_turn(cohort):
    ids = np.concatenate(
        [round_.ids for round_ in play(made("round_robin", cohort), 8)]
    )
    np.testing.assert_array_equal(ids, np.arange(8 * cohort) % CLIENTS)
