"""Channels change uploads on their way from the clients to `aggregate`.

    upload_k -> send (at the client) -> arrives? -> receive (at the server) -> aggregate

    attack     sign_flip random_update model_replacement; alie ipm, at the server
    clip       clip adaptive_clip, and noise: dp gaussian
    compress   uniform qsgd terngrad sign top_k random_k low_rank
    lose       lost
    reduce     norm_clip median trimmed_mean krum geometric_median centred_clip

The stages act in this order, and channels of the same stage in the order given. Every
`send` comes before the first `receive`.

A client's change is its upload minus the origin (`Algorithm.origin`). The origin is the
message in most methods, and zero if the upload is already a difference. A leaf without
an origin, such as IFCA's choice of a cluster, is not a change and passes unchanged.

A robust reducer is a channel too, chosen by the setting `aggregation`. It replaces
every upload by the robust value, which is then whatever mean the method takes. It is
refused for methods whose uploads have leaves without an origin.
"""

from pfljax.channel.attacks import model_replacement as model_replacement
from pfljax.channel.attacks import random_update as random_update
from pfljax.channel.attacks import sign_flip as sign_flip
from pfljax.channel.base import STAGES as STAGES
from pfljax.channel.base import Channel as Channel
from pfljax.channel.base import Sender as Sender
from pfljax.channel.base import Sent as Sent
from pfljax.channel.base import Start as Start
from pfljax.channel.base import as_received as as_received
from pfljax.channel.chains import chain as chain
from pfljax.channel.chains import in_next_exchange as in_next_exchange
from pfljax.channel.clipping import clip as clip
from pfljax.channel.clipping import gaussian as gaussian
from pfljax.channel.colluding import alie as alie
from pfljax.channel.colluding import ipm as ipm
from pfljax.channel.compressing import compressing as compressing
from pfljax.channel.losing import lost as lost
from pfljax.channel.memory import ClientMemory as ClientMemory
from pfljax.channel.memory import add_memory as add_memory
from pfljax.channel.memory import fit as fit
from pfljax.channel.memory import set_shapes as set_shapes
from pfljax.channel.names import AGGREGATIONS as AGGREGATIONS
from pfljax.channel.names import CHANNELS as CHANNELS
from pfljax.channel.names import TRANSFORMS as TRANSFORMS
from pfljax.channel.names import make as make
from pfljax.channel.outgoing import send as send
from pfljax.channel.private import adaptive_clip as adaptive_clip
from pfljax.channel.private import dp as dp
from pfljax.channel.quantised import qsgd as qsgd
from pfljax.channel.quantised import sign as sign
from pfljax.channel.quantised import terngrad as terngrad
from pfljax.channel.quantised import uniform as uniform
from pfljax.channel.robust import centred_clip as centred_clip
from pfljax.channel.robust import geometric_median as geometric_median
from pfljax.channel.robust import krum as krum
from pfljax.channel.robust import median as median
from pfljax.channel.robust import norm_clip as norm_clip
from pfljax.channel.robust import robust as robust
from pfljax.channel.robust import trimmed_mean as trimmed_mean
from pfljax.channel.sparse import low_rank as low_rank
from pfljax.channel.sparse import random_k as random_k
from pfljax.channel.sparse import top_k as top_k
from pfljax.channel.traffic import Traffic as Traffic
from pfljax.channel.traffic import check as check
from pfljax.channel.traffic import count_bytes as count_bytes
from pfljax.channel.traffic import count_traffic as count_traffic
