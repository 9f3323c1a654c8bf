"""Data: sources, partitions and federations. Importing it loads no data library."""

from pfljax.data.arrays import Arrays as Arrays
from pfljax.data.arrays import from_arrays as from_arrays
from pfljax.data.federate import federate as federate
from pfljax.data.federation import Federation as Federation
from pfljax.data.federation_checks import check_federation as check_federation
from pfljax.data.partitions import PARTITIONS as PARTITIONS
from pfljax.data.partitions.base import Partition as Partition
from pfljax.data.partitions.base import from_indices as from_indices
from pfljax.data.partitions.natural import by_client as by_client
from pfljax.data.sources import DATASETS as DATASETS
from pfljax.data.sources import OF_ALL as OF_ALL
from pfljax.data.sources import MissingDataset as MissingDataset
from pfljax.data.sources import load as load
from pfljax.data.sources import prepare as prepare
