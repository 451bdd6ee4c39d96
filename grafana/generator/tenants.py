"""The row about who does it to whom. Empty unless the settings tell tenants or priorities apart."""

from __future__ import annotations

from grafana.generator import limits
from grafana.generator.board import Section, even
from grafana.generator.looks import LEAST, MEANS, WIDE
from grafana.generator.metric import in_range, metric, rate
from grafana.generator.palette import ALL, BAD, PREFILL
from grafana.generator.panels import lines, now, over_time, ranking
from grafana.generator.series import WINDOW

NOT_TOLD = "Tenants are not told apart (tenant_header, tenant_from)"
NO_PRIORITIES = "Priorities are not told apart (priorities)"


def tenants() -> Section:
    caused = ranking(
        "Who causes it: stall seconds caused to other tenants",
        "All the time shown, most first: what prompts of each tenant did to streams of others. What it did to itself "
        "is not in here.",
        now(
            f"sort_desc (sum by (tenant) ({in_range('tenant_stall_caused_seconds_total', victim='others')}) > 0)",
            "{{tenant}}",
        ),
        "s",
        NOT_TOLD,
        limits.only(PREFILL),
    )
    suffered = ranking(
        "Who suffers: stall seconds because of other tenants",
        "All the time shown, most first: what streams of each tenant lost to prompts of others.",
        now(
            f"sort_desc (sum by (tenant) ({in_range('tenant_stall_suffered_seconds_total', culprit='others')}) > 0)",
            "{{tenant}}",
        ),
        "s",
        NOT_TOLD,
        limits.only(BAD),
    )
    share = lines(
        "Share of what others suffer, by who causes it",
        f"Above {limits.TENANT_SHARE:.0%} one tenant does it to the others, and TenantStallsOthers fires where that is "
        "noticeable.",
        over_time(
            f"sum by (tenant) ({rate('tenant_stall_caused_seconds_total', victim='others')}) / ignoring (tenant) "
            f"group_left () (sum ({rate('tenant_stall_suffered_seconds_total', culprit='others')}) > 0)",
            "{{tenant}}",
        ),
        unit="percentunit",
        empty=NOT_TOLD,
        look=MEANS,
    )
    kept = lines(
        "Promises kept, by tenant",
        "Requests for text within both targets (TTFT and time per token), without refused ones.",
        over_time(
            f"sum by (tenant) ({rate('tenant_requests_within_slo_total')}) "
            f"/ (sum by (tenant) ({rate('tenant_requests_total')}) > 0)",
            "{{tenant}}",
        ),
        unit="percentunit",
        empty=NOT_TOLD,
        look=LEAST,
    )
    gaps = lines(
        "Gap p99, by tenant",
        "Of the sliding window chosen above; of several sidecars the worst.",
        over_time(f"max by (tenant) ({metric('tenant_inter_token_latency_p99_seconds', window=WINDOW)})", "{{tenant}}"),
        unit="s",
        empty=NOT_TOLD,
        look=WIDE,
    )
    first = lines(
        "TTFT p99, by tenant",
        "Of the sliding window chosen above; of several sidecars the worst.",
        over_time(f"max by (tenant) ({metric('tenant_time_to_first_token_p99_seconds', window=WINDOW)})", "{{tenant}}"),
        unit="s",
        empty=NOT_TOLD,
        look=WIDE,
    )
    tokens = lines(
        "Tokens per second, by tenant",
        "Prompt and generated tokens together, counted when a request is over.",
        over_time(
            f"sum by (tenant) ({rate('tenant_prompt_tokens_total')}) "
            f"+ sum by (tenant) ({rate('tenant_generated_tokens_total')})",
            "{{tenant}}",
        ),
        unit="short",
        empty=NOT_TOLD,
        look=MEANS,
    )
    by_priority = ranking(
        "Stall seconds because of other classes, by priority",
        "All the time shown: what streams of each class lost to prompts of others. Lower numbers are served first.",
        now(
            f"sort_desc (sum by (priority) "
            f"({in_range('priority_stall_suffered_seconds_total', culprit='others')}) > 0)",
            "{{priority}}",
        ),
        "s",
        NO_PRIORITIES,
        limits.only(ALL),
    )
    priority_gaps = lines(
        "Gap p99, by priority",
        "Of the sliding window chosen above; of several sidecars the worst.",
        over_time(
            f"max by (priority) ({metric('priority_inter_token_latency_p99_seconds', window=WINDOW)})", "{{priority}}"
        ),
        unit="s",
        empty=NO_PRIORITIES,
        look=WIDE,
    )
    return Section(
        "Tenants and priorities, where they are told apart",
        (even(8, caused, suffered, share), even(8, kept, gaps, first), even(8, tokens, by_priority, priority_gaps)),
    )
