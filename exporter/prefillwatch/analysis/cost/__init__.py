"""What a step costs, by the prompt tokens in it, and the advice that follows."""

from prefillwatch.analysis.cost.advice import HARDLY, Advice, Engine, advise
from prefillwatch.analysis.cost.cost import BETTER, Busy, StepCost, fit
from prefillwatch.analysis.cost.costmodel import StepModel
from prefillwatch.analysis.cost.stepcosts import StepCosts

__all__ = [
    "BETTER",
    "HARDLY",
    "Advice",
    "Busy",
    "Engine",
    "StepCost",
    "StepCosts",
    "StepModel",
    "advise",
    "fit",
]
