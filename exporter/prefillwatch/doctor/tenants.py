"""Whether one tenant does it to the others; only where a sidecar tells tenants apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prefillwatch.contract import limits
from prefillwatch.doctor import thresholds
from prefillwatch.doctor.figures import Figures
from prefillwatch.doctor.finding import Finding, Number, Seen
from prefillwatch.report import duration, share
from prefillwatch.wire.sender import OTHER

TITLE: Final = "One tenant's prompts freeze the answers of others"
_REMEDY: Final = (
    "smaller steps help everybody (--max-num-batched-tokens); a limit of prompt tokens for that tenant in the gateway, "
    "or a replica of its own, helps the others"
)


def one_to_all(figures: Figures) -> Iterator[Finding]:
    """Judged by shares, as the alert is: of what tenants suffer from each other, and of all the time that streams
    took."""
    caused = figures.caused_by_tenant
    if not caused:
        return
    suffered = sum(figures.suffered_by_tenant.values())
    named = {tenant: seconds for tenant, seconds in caused.items() if tenant != OTHER}
    culprit = max(named, key=lambda tenant: named[tenant], default="")
    part = named[culprit] / suffered if culprit and suffered else 0.0
    numbers: dict[str, Number] = {
        "tenants": len(caused),
        "suffered_from_others_seconds": round(suffered, 3),
        "largest_share_caused": round(part, 4),
    }
    lost = suffered / figures.gaps.sum if figures.gaps and figures.gaps.sum else 0.0
    if figures.gap_count < thresholds.FEWEST_GAPS:
        yield Finding("tenants", TITLE, Seen.UNKNOWN, "Too few tokens came to tell.", numbers)
    elif part <= limits.TENANT_SHARE or lost < limits.STALL_SHARE_NOTICED:
        words = f"Tenants lost {duration(suffered)} to prompts of others, {share(lost)} of all streams' time"
        words += f"; the most by one tenant is {share(part)}" if part else ""
        yield Finding("tenants", TITLE, Seen.NO, words + ".", numbers)
    else:
        worst = max(figures.suffered_by_tenant, key=lambda tenant: figures.suffered_by_tenant[tenant])
        words = (
            f"Tenant {culprit} caused {share(part)} of the {duration(suffered)} that streams of tenants lost to "
            f"prompts of others; most of it hit {worst}. Who does it to whom: /api/tenants."
        )
        yield Finding("tenants", TITLE, Seen.YES, words, numbers, _REMEDY, "TenantStallsOthers", weight=named[culprit])
