"""What a step costs, by the prompt tokens in it, and the advice that follows. `Costs` is the one to ask."""

from prefillwatch.analysis.cost.advice import Advice, ReadAlone, Server, read_alone
from prefillwatch.analysis.cost.busy_times import Busy, low_quantile_law
from prefillwatch.analysis.cost.clear_step import ClearStep
from prefillwatch.analysis.cost.costs import Costs, KnownCost, PromptWork
from prefillwatch.analysis.cost.law import StepLaw
from prefillwatch.analysis.cost.samples import StepSample

__all__ = [
    "Advice",
    "Busy",
    "ClearStep",
    "Costs",
    "KnownCost",
    "PromptWork",
    "ReadAlone",
    "Server",
    "StepLaw",
    "StepSample",
    "low_quantile_law",
    "read_alone",
]
