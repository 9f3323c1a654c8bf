"""`pfljax bench`: how fast this machine simulates, alone or in turn with a peer."""

from pfljax.bench.run import run as run
from pfljax.bench.workloads import WORKLOADS as WORKLOADS
from pfljax.bench.workloads import Workload as Workload
