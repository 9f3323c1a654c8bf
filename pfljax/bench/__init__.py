"""`pfljax bench`: how fast this machine simulates, alone or in turn with a peer."""

from pfljax.bench.catalogue import WORKLOADS as WORKLOADS
from pfljax.bench.catalogue import Workload as Workload
from pfljax.bench.run import run as run
from pfljax.bench.table import show as show
