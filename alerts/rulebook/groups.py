"""Which rules go into which file: what a replica's own Prometheus can evaluate, and what needs the whole fleet."""

from __future__ import annotations

from alerts.rulebook.promises import budget_alerts, first_token_alerts
from alerts.rulebook.recording import budget_recordings, engine_recordings, fleet_recordings, replica_recordings
from alerts.rulebook.rule import Alert, Group
from alerts.rulebook.source import Source
from alerts.rulebook.stalls import stall_alerts
from alerts.rulebook.trust import trust_alerts
from alerts.rulebook.waiting import waiting_alerts


def files(source: Source) -> dict[str, tuple[Group, ...]]:
    """Groups by the stem of their file's name. Alerts stand behind the recordings they use, in the same group where
    they can: rules of a group run in order, so that they see what was recorded a moment before."""
    return {
        "replica": (
            Group("prefillwatch-stalls", (*replica_recordings(source), *stall_alerts(source))),
            Group("prefillwatch-waiting", waiting_alerts(source)),
            Group("prefillwatch-trust", trust_alerts(source)),
            Group("prefillwatch-engine", engine_recordings(source)),
        ),
        "fleet": (
            Group("prefillwatch-fleet", (*fleet_recordings(source), *first_token_alerts(source))),
            Group("prefillwatch-itl-budget", (*budget_recordings(source), *budget_alerts(source))),
        ),
    }


def all_groups(source: Source) -> tuple[Group, ...]:
    return tuple(group for groups in files(source).values() for group in groups)


def all_alerts(source: Source) -> tuple[Alert, ...]:
    return tuple(rule for group in all_groups(source) for rule in group.rules if isinstance(rule, Alert))
