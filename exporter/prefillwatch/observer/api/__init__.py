"""What is going on and what went wrong, as JSON for people and programs."""

from prefillwatch.observer.api.accounts import MOST_TOLD, Accounts
from prefillwatch.observer.api.advice import advice_now
from prefillwatch.observer.api.incidents import MOST_CULPRITS, MOST_KEPT, IncidentHistory, wall_offset
from prefillwatch.observer.api.pressure import prediction, pressures_now
from prefillwatch.observer.api.state import relay_state, streams_now
from prefillwatch.observer.api.tenants import tenants_now, tenants_shown

__all__ = [
    "MOST_CULPRITS",
    "MOST_KEPT",
    "MOST_TOLD",
    "Accounts",
    "IncidentHistory",
    "advice_now",
    "prediction",
    "pressures_now",
    "relay_state",
    "streams_now",
    "tenants_now",
    "tenants_shown",
    "wall_offset",
]
