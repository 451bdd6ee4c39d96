"""Which account is meant by an id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prefillwatch.story.account import Account
from prefillwatch.story.pictures import title

_MOST_NAMED: Final = 8


class UnknownIncidentError(Exception):
    """There is none of that id, and what there is."""


def find(accounts: Sequence[Account], name: str) -> Account:
    """By the id of the incident, or of a request: the newest incident that it had a part in, or rather one that it is
    to blame for. Without an id the newest of all. ``accounts`` are the newest first. Raises UnknownIncidentError."""
    if not accounts:
        raise UnknownIncidentError("no incident is known: nobody stood still, or it is too long ago")
    if not name:
        return accounts[0]
    by_request = [each for each in accounts if _has_part(each, name)]
    to_blame = [each for each in by_request if any(it.request_id == name and it.share for it in each.prompts)]
    exact = [each for each in accounts if each.incident["id"] == name]
    found = next(iter([*exact, *to_blame, *by_request]), None)
    if found is None:
        raise UnknownIncidentError(
            f"no incident or request {name[:100]!r} is known; there {'are' if len(accounts) > 1 else 'is'} "
            + ", ".join(f"{each.incident['id']} ({title(each)})" for each in accounts[:_MOST_NAMED])
            + (f" and {len(accounts) - _MOST_NAMED} older" if len(accounts) > _MOST_NAMED else "")
        )
    return found


def _has_part(account: Account, name: str) -> bool:
    return name in {each.request_id for each in account.streams} | {each.request_id for each in account.prompts}
