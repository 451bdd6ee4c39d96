"""Starts, watches, restarts and drains the processes.

supervisor   one life of prefillwatch, from its sockets to the end of its last process; `launch` is the plan of it
keeper       one process, started anew when it ends (`backoff`); `children` starts and reaps them all
relay_watch  what a relay's signs of life say (`relay_line`); `upstream_health` what upstream's health checks do
wellbeing    what /healthz and /readyz answer
control      keeps the observer informed of what is so now
"""

from __future__ import annotations

from prefillwatch.supervision.certificates import check_authority, check_certificates
from prefillwatch.supervision.held_port import HeldPort
from prefillwatch.supervision.launch import Launch
from prefillwatch.supervision.own_address import refuse_own_address
from prefillwatch.supervision.supervisor import Supervisor
from prefillwatch.supervision.upstream_command import UpstreamCommand, free_port, prepare

__all__ = [
    "HeldPort",
    "Launch",
    "Supervisor",
    "UpstreamCommand",
    "check_authority",
    "check_certificates",
    "free_port",
    "prepare",
    "refuse_own_address",
]
