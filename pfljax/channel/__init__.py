"""Channels: the way of uploads from the clients to `aggregate`.

    upload_k -> send (at the client) -> lose -> receive (at the server) -> aggregate

    attack     sign_flip random_update model_replacement; alie ipm, where uploads meet
    clip       clip adaptive_clip, and noise: dp gaussian
    compress   uniform qsgd terngrad sign top_k random_k low_rank
    lose       lost
    reduce     norm_clip median trimmed_mean krum geometric_median centred_clip

They act in this order, whatever order they are given in; those of one stage in the one
given. At the client all stages come before anything happens at the server.

What a client changed is its upload without its origin (`Algorithm.origin`): the message
of most methods, zeros where the upload is a difference already. A leaf without an
origin, such as IFCA's choice of a cluster, is no change and passes as it is.

A robust reducer is a channel too, chosen by the setting `aggregation`: it puts the
robust value in the place of every upload, so that whatever mean the method takes is
that value. Uploads that have leaves without an origin would be mixed by it: with those
methods it is refused.
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
from pfljax.channel.clipping import clip as clip
from pfljax.channel.clipping import gaussian as gaussian
from pfljax.channel.colluding import alie as alie
from pfljax.channel.colluding import ipm as ipm
from pfljax.channel.compressing import compressing as compressing
from pfljax.channel.losing import lost as lost
from pfljax.channel.memory import Remembering as Remembering
from pfljax.channel.memory import fit as fit
from pfljax.channel.memory import remembering as remembering
from pfljax.channel.memory import shaped_by as shaped_by
from pfljax.channel.names import AGGREGATIONS as AGGREGATIONS
from pfljax.channel.names import CHANNELS as CHANNELS
from pfljax.channel.names import ON_THE_WAY as ON_THE_WAY
from pfljax.channel.names import make as make
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
from pfljax.channel.several import again as again
from pfljax.channel.several import chain as chain
from pfljax.channel.sparse import low_rank as low_rank
from pfljax.channel.sparse import random_k as random_k
from pfljax.channel.sparse import top_k as top_k
from pfljax.channel.traffic import Traffic as Traffic
from pfljax.channel.traffic import check as check
from pfljax.channel.traffic import count_bytes as count_bytes
from pfljax.channel.traffic import count_traffic as count_traffic
from pfljax.channel.travel import send as send
