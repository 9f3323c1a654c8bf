"""The client axis and the round axis, on one device or many."""

from pfljax.engine.cohort_training import client_key as client_key
from pfljax.engine.plan import draw as draw
from pfljax.engine.rounds import compile_rounds as compile_rounds
from pfljax.engine.rounds import one_round as one_round
from pfljax.engine.setting import Setting as Setting
from pfljax.engine.setting import count_gradients as count_gradients
from pfljax.engine.state import first_params as first_params
from pfljax.engine.state import init as init
from pfljax.engine.state import init_client as init_client
