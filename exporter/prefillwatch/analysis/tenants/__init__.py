"""Who does it to whom: figures by tenant and by priority, bounded however many tenants there are."""

from prefillwatch.analysis.tenants.books import SenderBook, Totals
from prefillwatch.analysis.tenants.matrix import BlameMatrix
from prefillwatch.analysis.tenants.places import Places
from prefillwatch.analysis.tenants.senders import Senders

__all__ = [
    "BlameMatrix",
    "Places",
    "SenderBook",
    "Senders",
    "Totals",
]
