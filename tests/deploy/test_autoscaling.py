"""Autoscaling by the pressure that replicas take away: manifests by their schemas, queries of series that exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import promql_parser as promql
import pytest
import yaml
from tests.alerts.promql_labels import selectors
from tests.alerts.shipped import world
from tests.deploy.tools import Object, kustomized

from prefillwatch.contract.limits import PRESSURE_TARGET

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
OLDEST_KUBERNETES = "1.29"
_TEXT = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 0}


def _strict(optional: dict[str, Any], **needed: Any) -> dict[str, Any]:
    """An object with these fields and no others."""
    fields = needed | optional
    return {"type": "object", "properties": fields, "required": list(needed), "additionalProperties": False}


#: KEDA's schema is in no package that installs without much else, so the fields that we use are written down here, as
#: its custom resource definition and the page of its prometheus trigger have them: all its values are texts.
SCALED_OBJECT = _strict(
    {},
    apiVersion={"const": "keda.sh/v1alpha1"},
    kind={"const": "ScaledObject"},
    metadata=_strict({"labels": {"type": "object"}}, name=_TEXT),
    spec=_strict(
        {
            "minReplicaCount": _COUNT,
            "maxReplicaCount": _COUNT,
            "pollingInterval": _COUNT,
            "fallback": _strict(
                {
                    "behavior": {
                        "enum": ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]
                    }
                },
                failureThreshold=_COUNT,
                replicas=_COUNT,
            ),
            "advanced": _strict({}, horizontalPodAutoscalerConfig=_strict({}, behavior={"type": "object"})),
        },
        scaleTargetRef=_strict({}, name=_TEXT),
        triggers={
            "type": "array",
            "items": _strict(
                {"metricType": {"enum": ["AverageValue", "Value", "Utilization"]}},
                type={"const": "prometheus"},
                metadata=_strict({"ignoreNullValues": _TEXT}, serverAddress=_TEXT, query=_TEXT, threshold=_TEXT),
            ),
        },
    ),
)


@pytest.fixture(scope="module")
def scaled() -> Any:
    (found,) = kustomized(FOLDER / "autoscaling/keda")
    return found


@pytest.fixture(scope="module")
def hpa() -> Any:
    (found,) = kustomized(FOLDER / "autoscaling/hpa")
    return found


@pytest.fixture(scope="module")
def rule() -> Any:
    (found,) = yaml.safe_load((FOLDER / "autoscaling/hpa/adapter.yaml").read_text())["rules"]["external"]
    return found


def asks_for_what_is_recorded(query: str) -> None:
    known = world().labels()
    for selector in selectors(promql.parse(query)):
        assert selector.name in known


def test_the_scaled_object_is_valid_by_kedas_schema(scaled: Object) -> None:
    jsonschema.validate(scaled, SCALED_OBJECT)


def test_a_misspelt_field_would_be_found(scaled: Object) -> None:
    wrong = yaml.safe_load(yaml.safe_dump(scaled))
    wrong["spec"]["maxReplicas"] = wrong["spec"].pop("maxReplicaCount")
    with pytest.raises(jsonschema.ValidationError, match="maxReplicas"):
        jsonschema.validate(wrong, SCALED_OBJECT)


@pytest.mark.parametrize("version", [OLDEST_KUBERNETES, kubernetes_validate.latest_version()])
def test_the_hpa_is_valid_by_the_schema_of_kubernetes(hpa: Object, version: str) -> None:
    kubernetes_validate.validate(hpa, version, strict=True)


def test_both_scale_the_deployment_of_the_example_to_the_same_load(scaled: Object, hpa: Object, rule: Object) -> None:
    deployments = [each for each in kustomized(FOLDER / "example") if each["kind"] == "Deployment"]
    assert [each["metadata"]["name"] for each in deployments] == [scaled["spec"]["scaleTargetRef"]["name"]]
    assert hpa["spec"]["scaleTargetRef"]["name"] == scaled["spec"]["scaleTargetRef"]["name"]
    (trigger,), (metric,) = scaled["spec"]["triggers"], hpa["spec"]["metrics"]
    assert (trigger["metricType"], metric["external"]["target"]["type"]) == ("AverageValue", "AverageValue")
    assert float(trigger["metadata"]["threshold"]) == PRESSURE_TARGET
    assert metric["external"]["target"]["averageValue"] == f"{1000 * PRESSURE_TARGET:.0f}m"
    assert metric["external"]["metric"]["name"] == rule["name"]["as"]
    behaviours = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"], hpa["spec"]["behavior"]
    assert behaviours[0] == behaviours[1]


def test_they_ask_for_what_the_rules_record(scaled: Object, rule: Object) -> None:
    (trigger,) = scaled["spec"]["triggers"]
    asks_for_what_is_recorded(trigger["metadata"]["query"])
    asks_for_what_is_recorded(rule["seriesQuery"])
    series = rule["seriesQuery"].partition("{")[0]
    filled = rule["metricsQuery"].replace("<<.Series>>", series)
    filled = filled.replace("<<.LabelMatchers>>", 'namespace="inference"').replace("<<.GroupBy>>", "namespace")
    assert "<<" not in filled
    asks_for_what_is_recorded(filled)
