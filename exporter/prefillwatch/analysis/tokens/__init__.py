"""Gaps between tokens: how they are measured, their baselines, and their quantiles over windows."""

from prefillwatch.analysis.tokens.concurrency import LEVEL_LABELS, ConcurrencyMeter, LevelTotals
from prefillwatch.analysis.tokens.correlation import GapPromptCorrelation
from prefillwatch.analysis.tokens.flow import Flow, StepFlow
from prefillwatch.analysis.tokens.gaps import OF_STREAM, GapBatch, GapBook
from prefillwatch.analysis.tokens.intervals import StreamIntervals
from prefillwatch.analysis.tokens.pending import Gaps, PendingGaps
from prefillwatch.analysis.tokens.read_log import MOST_READS, ReadLog
from prefillwatch.analysis.tokens.windows import (
    LogBuckets,
    SlidingWindows,
    quantile_of_all,
    quantile_rank,
)

__all__ = [
    "LEVEL_LABELS",
    "MOST_READS",
    "OF_STREAM",
    "ConcurrencyMeter",
    "Flow",
    "GapBatch",
    "GapBook",
    "GapPromptCorrelation",
    "Gaps",
    "LevelTotals",
    "LogBuckets",
    "PendingGaps",
    "ReadLog",
    "SlidingWindows",
    "StepFlow",
    "StreamIntervals",
    "quantile_of_all",
    "quantile_rank",
]
