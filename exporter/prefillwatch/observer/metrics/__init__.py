"""The metrics: facts are counted as they become final, what is true now is worked out when somebody asks."""

from prefillwatch.observer.metrics.exemplars import Exemplars
from prefillwatch.observer.metrics.gauges import publish_models
from prefillwatch.observer.metrics.link import publish_link
from prefillwatch.observer.metrics.own import publish_control, publish_processes, publish_relays
from prefillwatch.observer.metrics.publish import Publisher
from prefillwatch.observer.metrics.senders import publish_senders
from prefillwatch.observer.metrics.standard import StandardCounts, StandardHistograms
from prefillwatch.observer.metrics.upstream import publish_gpus, publish_upstream

__all__ = [
    "Exemplars",
    "Publisher",
    "StandardCounts",
    "StandardHistograms",
    "publish_control",
    "publish_gpus",
    "publish_link",
    "publish_models",
    "publish_processes",
    "publish_relays",
    "publish_senders",
    "publish_upstream",
]
