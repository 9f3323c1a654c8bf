"""Data sets by name, and readers of files."""

from pfljax.data.sources.catalogue import DATASETS as DATASETS
from pfljax.data.sources.catalogue import OF_ALL as OF_ALL
from pfljax.data.sources.catalogue import MissingDataset as MissingDataset
from pfljax.data.sources.catalogue import load as load
from pfljax.data.sources.catalogue import prepare as prepare
