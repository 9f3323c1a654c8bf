"""`pfljax bench`: the speed of this machine, alone or beside another simulator."""

from pfljax.bench.catalogue import WORKLOADS as WORKLOADS
from pfljax.bench.catalogue import Workload as Workload
from pfljax.bench.run import run as run
from pfljax.bench.table import show as show
