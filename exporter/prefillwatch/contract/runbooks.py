"""Names of alerts. Each has a runbook of its name in ``alerts/runbooks``, for whoever wants to point at it."""

from __future__ import annotations

from typing import Literal

Runbook = Literal[
    "CertificateExpires",
    "ExporterDown",
    "FirstTokenStuck",
    "ITLBudgetBurn",
    "InterferencePressure",
    "KVCacheNearlyFull",
    "KVSignalLost",
    "MeasurementUnreliable",
    "NotPrefillEnginePause",
    "NotPrefillFrontend",
    "NotPrefillPreemption",
    "PreemptionStorm",
    "PrefillHeadOfLine",
    "PrefillInterference",
    "QueueSaturation",
    "RelayUnstable",
    "RequestsRefused",
    "StreamFreeze",
    "TTFTHigh",
    "TenantStallsOthers",
    "UpstreamDown",
]
