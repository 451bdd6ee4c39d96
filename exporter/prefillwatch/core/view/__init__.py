"""What a core knows as of one moment: what metrics, API, live page and recorder read, and all that they read.

Values here are frozen. Model numbers are names already, and no book of the analysis gets out.
"""

from prefillwatch.core.view.around import EngineLinkNow, RelayNow, TapNow
from prefillwatch.core.view.in_flight import ModelLoad, RequestNow, SequenceNow, StallNow
from prefillwatch.core.view.incidents import (
    CulpritNow,
    IncidentHead,
    IncidentNow,
    LinkNow,
    incident_links,
    incident_now,
)
from prefillwatch.core.view.models import GapFigures, ModelAdvice, ModelFigures, ModelPressure
from prefillwatch.core.view.senders import BlameNow, SenderFigures, SendersNow
from prefillwatch.core.view.view import View

__all__ = [
    "BlameNow",
    "CulpritNow",
    "EngineLinkNow",
    "GapFigures",
    "IncidentHead",
    "IncidentNow",
    "LinkNow",
    "ModelAdvice",
    "ModelFigures",
    "ModelLoad",
    "ModelPressure",
    "RelayNow",
    "RequestNow",
    "SenderFigures",
    "SendersNow",
    "SequenceNow",
    "StallNow",
    "TapNow",
    "View",
    "incident_links",
    "incident_now",
]
