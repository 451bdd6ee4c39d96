"""One request and its prompt: its life, the models served, sizes of prompts, beginnings that were read before."""

from prefillwatch.analysis.requests.lifecycle import (
    CLIENT_CLOSED,
    LOST,
    OUTCOMES,
    Event,
    Lifecycle,
    LifecycleError,
    outcome,
)
from prefillwatch.analysis.requests.models import OTHER, ModelNames
from prefillwatch.analysis.requests.prompt_sizes import NONE, PromptBuckets, prompt_length_windows
from prefillwatch.analysis.requests.request import NOWHERE, Place, Request
from prefillwatch.analysis.requests.sizing import PromptSizing

__all__ = [
    "CLIENT_CLOSED",
    "LOST",
    "NONE",
    "NOWHERE",
    "OTHER",
    "OUTCOMES",
    "Event",
    "Lifecycle",
    "LifecycleError",
    "ModelNames",
    "Place",
    "PromptBuckets",
    "PromptSizing",
    "Request",
    "outcome",
    "prompt_length_windows",
]
