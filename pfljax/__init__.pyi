from .core.training import fit as fit
from .core.types import Algorithm as Algorithm
from .core.types import Batch as Batch
from .core.types import ClientData as ClientData
from .core.types import Cohort as Cohort
from .core.types import Examples as Examples
from .core.types import Local as Local
from .core.types import RunState as RunState
from .core.types import Task as Task
from .core.types import Turn as Turn
from .data.arrays import from_arrays as from_arrays
from .data.federate import federate as federate
from .data.federation import Federation as Federation
from .engine.rounds import Setting as Setting
from .models.task import task as task
from .runs.result import Result as Result
from .runs.result import result as result
from .runs.settings import Experiment as Experiment
from .runtime.programs import forget_programs as forget_programs
from .simulate.build import Simulator as Simulator
from .simulate.build import build as build
from .simulate.personal import personal_models as personal_models
from .simulate.personal import predictions as predictions
from .simulate.run import run as run

__version__: str
