"""Components, which settings name, and the factories that make them.

A component is written "shards:per_client=2" on the command line and in config.json. Its
factory has annotated options, which say which values they take.
"""

from pfljax.registry.components import Component as Component
from pfljax.registry.components import convert as convert
from pfljax.registry.components import convert_all as convert_all
from pfljax.registry.components import literal as literal
from pfljax.registry.components import parse as parse
from pfljax.registry.factories import check as check
from pfljax.registry.factories import check_names as check_names
from pfljax.registry.factories import check_value as check_value
from pfljax.registry.factories import check_values as check_values
from pfljax.registry.factories import component as component
from pfljax.registry.factories import defaults as defaults
from pfljax.registry.factories import in_floats as in_floats
from pfljax.registry.factories import options as options
from pfljax.registry.factories import select_context as select_context
from pfljax.registry.factories import validate as validate
from pfljax.registry.names import find as find
from pfljax.registry.names import require as require
from pfljax.registry.names import require_a as require_a
from pfljax.registry.names import require_call as require_call
from pfljax.registry.names import require_known as require_known
from pfljax.registry.names import unknown as unknown
from pfljax.registry.ranges import AT_LEAST_ONE as AT_LEAST_ONE
from pfljax.registry.ranges import AT_LEAST_ZERO as AT_LEAST_ZERO
from pfljax.registry.ranges import BELOW_ONE as BELOW_ONE
from pfljax.registry.ranges import INT32 as INT32
from pfljax.registry.ranges import NOT_NEGATIVE as NOT_NEGATIVE
from pfljax.registry.ranges import POSITIVE as POSITIVE
from pfljax.registry.ranges import AtLeastOne as AtLeastOne
from pfljax.registry.ranges import BelowOne as BelowOne
from pfljax.registry.ranges import Count as Count
from pfljax.registry.ranges import Deviation as Deviation
from pfljax.registry.ranges import Epochs as Epochs
from pfljax.registry.ranges import NotNegative as NotNegative
from pfljax.registry.ranges import Positive as Positive
from pfljax.registry.ranges import ProperShare as ProperShare
from pfljax.registry.ranges import Range as Range
from pfljax.registry.ranges import Share as Share
from pfljax.registry.ranges import Steps as Steps
