"""Models behind `Task`: a zoo in Flax Linen, and adapters for Linen and NNX modules."""

from pfljax.models.conv import conv_for_platform as conv_for_platform
from pfljax.models.conv import im2col as im2col
from pfljax.models.conv import max_pool as max_pool
from pfljax.models.linear import Linear as Linear
from pfljax.models.nnx import task_from_nnx as task_from_nnx
from pfljax.models.task import task as task
from pfljax.models.zoo import MODELS as MODELS
from pfljax.models.zoo import Network as Network
from pfljax.models.zoo import gn_cnn as gn_cnn
from pfljax.models.zoo import logistic as logistic
from pfljax.models.zoo import mlp as mlp
from pfljax.models.zoo import model as model
from pfljax.models.zoo import twocnn as twocnn
from pfljax.models.zoo import twocnn_superfed as twocnn_superfed
from pfljax.models.zoo import twonn as twonn
from pfljax.models.zoo import twonn_superfed as twonn_superfed
