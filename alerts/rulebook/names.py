"""Names of what recording rules make, each in one place: level, metric, operations."""

from __future__ import annotations

from alerts.rulebook.rule import asked
from alerts.rulebook.source import Duration, Source


class Names:
    """The recorded series by what they mean. ``window`` is the diagnosis window; rates are over it by default."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.window = source.diagnosis
        prefix, rate = source.metric, f"rate{source.diagnosis.name}"

        # One replica. Stream-seconds of decoding per second: the mean number of decoding streams.
        self.decoding = f"instance_model:{prefix('inter_token_latency_seconds')}:sum_{rate}"
        self.stalls = f"instance_model_cause:{prefix('stall_seconds')}:{rate}"
        self.cause_share = f"instance_model_cause:{prefix('stall_seconds_per_stall_seconds')}:ratio_{rate}"
        self.stall_share = f"instance_model_cause:{prefix('stall_seconds_per_decoding_seconds')}:ratio_{rate}"
        self.replica_misses = f"instance_model:{prefix('deadline_misses_per_deadlines')}:ratio_{rate}"
        self.frozen_share = f"instance_model:{prefix('frozen_streams_per_decoding_streams')}:ratio"

        # The fleet.
        self.fleet_itl_buckets = (
            f"job_model_concurrent_prompt:{prefix('inter_token_latency_seconds_bucket')}:sum_{rate}"
        )
        self.fleet_stalls = f"job_model_cause:{prefix('stall_seconds')}:sum_{rate}"
        self.fleet_cause_share = f"job_model_cause:{prefix('stall_seconds_per_stall_seconds')}:ratio_{rate}"
        self.fleet_stall_share = f"job_model_cause:{prefix('stall_seconds_per_decoding_seconds')}:ratio_{rate}"
        self.fleet_blame = f"job_model_prompt_bucket:{prefix('prefill_blame_seconds')}:sum_{rate}"
        self.fleet_deadlines = f"job_model:{prefix('token_deadlines')}:sum_{rate}"
        self.fleet_deadline_misses = f"job_model:{prefix('token_deadline_misses')}:sum_{rate}"
        self.fleet_misses = f"job_model:{prefix('deadline_misses_per_deadlines')}:ratio_{rate}"
        # Autoscalers multiply by the sum of the first; see deploy/kubernetes/autoscaling.
        self.fleet_capacity_sum = f"job_model:{prefix('capacity_pressure_ratio')}:sum"
        self.fleet_capacity = f"job_model:{prefix('capacity_pressure_ratio')}:avg"
        self.fleet_interference = f"job_model:{prefix('interference_pressure_ratio')}:max"
        self.gaps = f"job_model:{prefix('gaps')}:sum_{rate}"
        self.slow_gaps = f"job_model:{prefix('slow_gaps')}:sum_{rate}"

    def metric(self, name: str) -> str:
        """A raw metric of our job."""
        return f'{self.source.metric(name)}{{job="{self.source.job}"}}'

    def raw(self, name: str, **matchers: str) -> str:
        """A raw metric of our job with further matchers. A value may begin with an operator: ``!x`` is not x, ``~x``
        and ``!~x`` take a regular expression."""
        parts = [f'job="{self.source.job}"']
        for key, value in matchers.items():
            operator = next((each for each in ("!~", "!", "~") if value.startswith(each)), "")
            sign = {"": "=", "!": "!=", "~": "=~", "!~": "!~"}[operator]
            parts.append(f'{key}{sign}"{value.removeprefix(operator)}"')
        return f"{self.source.metric(name)}{{{', '.join(parts)}}}"

    @property
    def place(self) -> tuple[str, str, str]:
        """Labels of an alert about one model on one replica."""
        return ("job", self.source.replica_label, "model")

    def here(self, name: str) -> str:
        """A raw metric of the place that an alert is about, for `asked`."""
        job, replica, model = self.place
        return f"{self.source.metric(name)}{{{job}=%q,{replica}=%q,{model}=%q}}"

    def gauge_here(self, name: str) -> str:
        """A gauge of that place as a number in a description."""
        show = '{{ . | first | value | printf "%.0f" }}'
        return asked(self.here(name), self.place, show, "an unknown number of")

    def engine_now(self, name: str) -> str:
        """A gauge summed over all models of the replica that an alert is about: adapters share its engine."""
        job, replica, _ = self.place
        query = f"sum({self.source.metric(name)}{{{job}=%q,{replica}=%q}})"
        return asked(query, (job, replica), '{{ . | first | value | printf "%.0f" }}', "an unknown number of")

    def replica_itl(self, quantile: str) -> str:
        metric = self.source.metric("inter_token_latency_seconds")
        return f"instance_model:{metric}:{quantile}_rate{self.window.name}"

    def fleet_itl(self, quantile: str) -> str:
        return f"job_model:{self.source.metric('inter_token_latency_seconds')}:{quantile}_rate{self.window.name}"

    def fleet_itl_by_prompt(self, quantile: str) -> str:
        metric = self.source.metric("inter_token_latency_seconds")
        return f"job_model_concurrent_prompt:{metric}:{quantile}_rate{self.window.name}"

    def fleet_by_size_buckets(self, family: str) -> str:
        return f"job_model_prompt_bucket:{self.source.metric(family)}_bucket:sum_rate{self.window.name}"

    def fleet_by_size(self, family: str, quantile: str) -> str:
        return f"job_model_prompt_bucket:{self.source.metric(family)}:{quantile}_rate{self.window.name}"

    def slow_share(self, window: Duration) -> str:
        return f"job_model:{self.source.metric('slow_gaps_per_gaps')}:ratio_rate{window.name}"

    def engine_itl(self, quantile: str) -> str:
        return f"instance_model_name:vllm_inter_token_latency_seconds:{quantile}_rate{self.window.name}"
