"""The files that are made of the rules: plain rule files, the Kubernetes resource and the runbook index; and the unit
tests, filled in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from alerts.rulebook.collection import section
from alerts.rulebook.groups import all_alerts, all_groups, files
from alerts.rulebook.rule import Alert, Group, Recording, number
from alerts.rulebook.source import Source, format_duration

HEADER = "# Written by python -m alerts.generate from alerts/source.yml; change it there.\n"
#: Of the Prometheus that fires an alert; promtool, which is none, has an empty one.
EXTERNAL_URL = "{{ $externalURL }}"


def documents(source: Source) -> dict[str, str]:
    """Every generated file with its text."""
    texts = rule_files(source)
    texts["kubernetes/prometheusrule.yaml"] = prometheus_rule(source)
    texts["kustomization.yaml"] = kustomization(source)
    texts["runbooks/README.md"] = runbook_index(source)
    texts["upstream/awesome-prometheus-alerts.yml"] = HEADER + section(source)
    return texts


def rule_files(source: Source) -> dict[str, str]:
    return {f"rules/{stem}.yml": rule_file(source, groups) for stem, groups in files(source).items()}


def unit_tests(source: Source, templates: Path) -> dict[str, str]:
    """Tests for promtool, made of the templates in a folder; they look for the rules in ``../rules``."""
    constants = test_constants(source)
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(templates.glob("*.yml"))}
    return {f"tests/{name}": filled(text, constants) for name, text in texts.items()}


def rule_file(source: Source, groups: Iterable[Group]) -> str:
    return HEADER + _yaml({"groups": [_group(source, group) for group in groups]})


def prometheus_rule(source: Source) -> str:
    """All groups as one resource. Prometheus operators of kube-prometheus-stack pick up only resources that carry
    their ``release`` label: add it with kustomize or set ruleSelectorNilUsesHelmValues to false."""
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "prefillwatch", "labels": {"app.kubernetes.io/name": "prefillwatch"}},
        "spec": {"groups": [_group(source, group) for group in all_groups(source)]},
    }
    return HEADER + _yaml(resource)


def kustomization(source: Source) -> str:
    """The resource, and the runbooks as a ConfigMap that a Prometheus can mount and serve."""
    pages = [f"runbooks/{name}.md" for name in ("README", *_by_name(all_alerts(source)))]
    return HEADER + _yaml(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": ["kubernetes/prometheusrule.yaml"],
            "configMapGenerator": [{"name": "prefillwatch-runbooks", "files": pages}],
            "generatorOptions": {
                "disableNameSuffixHash": True,
                "labels": {"app.kubernetes.io/name": "prefillwatch"},
            },
        }
    )


def _group(source: Source, group: Group) -> dict[str, Any]:
    rules = [_recording(rule) if isinstance(rule, Recording) else _alert(source, rule) for rule in group.rules]
    return {"name": group.name, "interval": str(source.evaluation), "rules": rules}


def _recording(rule: Recording) -> dict[str, Any]:
    return {"record": rule.record, "expr": rule.expr}


def _alert(source: Source, alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": str(alert.hold),
        "keep_firing_for": str(alert.keep),
        "labels": {"severity": alert.severity, **alert.labels},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": source.runbook(alert.name),
        },
    }


def runbook_index(source: Source) -> str:
    lines = [
        "<!-- Written by python -m alerts.generate from alerts/source.yml; change it there. -->",
        "# Runbooks",
        "",
        "One page per alert: what users feel, how to confirm it, what to change, how to see that it helped.",
        "",
        "`REPLICA` stands for the host of a sidecar. In Kubernetes first: `kubectl port-forward POD 9843`, it is then",
        '`127.0.0.1`. Where the admin listener asks for a token, curl needs `-H "Authorization: Bearer …"`. A second',
        "opinion on a replica, in words and with the numbers behind them: `prefillwatch doctor http://REPLICA:9843`.",
        "",
        "| alert | severity | holds for | what it says |",
        "|---|---|---|---|",
    ]
    for name, alerts in _by_name(all_alerts(source)).items():
        severities = ", ".join(dict.fromkeys(alert.severity for alert in alerts))
        holds = ", ".join(dict.fromkeys(str(alert.hold) for alert in alerts))
        summaries = " ".join(dict.fromkeys(alert.summary for alert in alerts))
        lines.append(f"| [{name}]({name}.md) | {severities} | {holds} | {summaries} |")
    return "\n".join(lines) + "\n"


def _by_name(alerts: Iterable[Alert]) -> dict[str, list[Alert]]:
    found: dict[str, list[Alert]] = {}
    for alert in alerts:
        found.setdefault(alert.name, []).append(alert)
    return found


# --- Unit tests ---


def test_constants(source: Source) -> dict[str, str]:
    """What a test template may name as ``<<key>>``: times, thresholds, and the texts that never vary."""
    numbers = {key: value for key, value in source.raw["thresholds"].items() if not isinstance(value, list)}
    constants = {f"threshold.{key}": number(value) for key, value in numbers.items()}
    constants |= {f"ttft.{size}": number(limit) for size, limit in source.promises["ttft_p99"].items()}
    constants |= {
        "job": source.job,
        "vllm_job": source.vllm_job,
        "prefix": source.metric(""),
        "vllm_prefix": source.vllm_metric(""),
        "scrape": str(source.scrape),
        "evaluation": str(source.evaluation),
        "window": str(source.diagnosis),
        "level": str(source.level),
        "start": str(source.start),
        "restarts": str(source.restarts),
        "renewals": str(source.renewals),
        "itl": repr(float(source.promises["itl"])),
    }
    for alert in all_alerts(source):
        constants[f"for.{alert.name}"] = str(alert.hold)
        constants[f"summary.{alert.name}"] = alert.summary
        constants[f"runbook.{alert.name}"] = source.runbook(alert.name).replace(EXTERNAL_URL, "")
        constants[f"after.{alert.name}"] = format_duration(source.diagnosis.seconds + alert.hold.seconds)
    return constants


def filled(template: str, constants: dict[str, str]) -> str:
    """Raises KeyError for a constant that does not exist."""
    return re.sub(r"<<([^<>]+)>>", lambda found: constants[found[1]], template)


class _Dumper(yaml.SafeDumper):
    """Expressions as blocks, lists indented as people write them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 (PyYAML's signature)
        super().increase_indent(flow, indentless=False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _yaml(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
