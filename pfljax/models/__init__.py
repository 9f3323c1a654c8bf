"""Models behind `Task`: a zoo in Flax Linen, and adapters for Linen and NNX modules."""

from typing import TYPE_CHECKING

import lazy_loader

from pfljax.models.adapters import FedPara as FedPara
from pfljax.models.adapters import LoRA as LoRA
from pfljax.models.convolution import conv_for_platform as conv_for_platform
from pfljax.models.convolution import convolve as convolve
from pfljax.models.convolution import im2col as im2col
from pfljax.models.dropout import Dropout as Dropout
from pfljax.models.linear import Linear as Linear
from pfljax.models.network import Network as Network
from pfljax.models.pooling import max_pool as max_pool
from pfljax.models.recurrent import LSTM as LSTM
from pfljax.models.recurrent import char_lstm as char_lstm
from pfljax.models.small import MODELS as MODELS
from pfljax.models.small import cifar_cnn as cifar_cnn
from pfljax.models.small import fedpara as fedpara
from pfljax.models.small import gn_cnn as gn_cnn
from pfljax.models.small import logistic as logistic
from pfljax.models.small import lora as lora
from pfljax.models.small import mlp as mlp
from pfljax.models.small import model as model
from pfljax.models.small import twocnn as twocnn
from pfljax.models.small import twonn as twonn
from pfljax.models.task import check_task as check_task
from pfljax.models.task import task as task
from pfljax.models.transformer import transformer as transformer

if TYPE_CHECKING:
    from pfljax.models.nnx import task_from_nnx as task_from_nnx

# Its import takes as long as those of Linen and Optax, and few have models in NNX.
__getattr__, *_ = lazy_loader.attach(__name__, submod_attrs={"nnx": ["task_from_nnx"]})
