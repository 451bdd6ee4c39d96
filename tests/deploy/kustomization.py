"""As much of kustomize as our files use, for checks where kubectl is missing or too old.

What is not known here is an error: a file that uses more than this must be checked in another way.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
#: Lists that a strategic merge joins by the name of their items; it replaces all others.
_BY_NAME = {"containers", "initContainers", "env", "volumes"}
_KNOWN = {
    "apiVersion",
    "kind",
    "resources",
    "components",
    "patches",
    "namespace",
    "images",
    "configMapGenerator",
    "generatorOptions",
}


def build(folder: Path) -> list[Object]:
    """The objects that the folder's kustomization makes."""
    return _apply(folder, [])


def _apply(folder: Path, objects: list[Object]) -> list[Object]:
    plan = yaml.safe_load((folder / "kustomization.yaml").read_text())
    unknown = set(plan) - _KNOWN
    assert not unknown, f"{folder}: {unknown} is not known here"
    for name in plan.get("resources", ()):
        objects = objects + _resource(folder, name)
    for name in plan.get("components", ()):
        part = (folder / name).resolve()
        assert yaml.safe_load((part / "kustomization.yaml").read_text())["kind"] == "Component"
        objects = _apply(part, objects)
    objects = objects + [
        _config_map(folder, entry, plan["generatorOptions"]) for entry in plan.get("configMapGenerator", ())
    ]
    for patch in plan.get("patches", ()):
        content = yaml.safe_load((folder / patch["path"]).read_text())
        objects = [_patched(item, content) if _targeted(item, patch["target"]) else item for item in objects]
    for item in objects:
        if "namespace" in plan:
            item["metadata"]["namespace"] = plan["namespace"]
        _rename_images(item, plan.get("images", ()))
    return objects


def _resource(folder: Path, name: str) -> list[Object]:
    path = (folder / name).resolve()
    if path.is_dir():
        return _apply(path, [])
    assert path.is_relative_to(folder.resolve()), f"{path} is outside of {folder}, which kustomize refuses"
    return [item for item in yaml.safe_load_all(path.read_text()) if item]


def _config_map(folder: Path, entry: Object, options: Object) -> Object:
    assert options["disableNameSuffixHash"] is True
    paths = [(folder / name).resolve() for name in entry["files"]]
    assert all(path.is_relative_to(folder.resolve()) for path in paths)
    metadata = {"name": entry["name"], "labels": dict(options["labels"])}
    data = {path.name: path.read_text() for path in paths}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _targeted(item: Object, target: Object) -> bool:
    assert set(target) == {"kind", "labelSelector"}
    key, _, value = target["labelSelector"].partition("=")
    return bool(item["kind"] == target["kind"] and item["metadata"].get("labels", {}).get(key) == value)


def _patched(item: Object, patch: Any) -> Object:
    result = copy.deepcopy(item)
    if isinstance(patch, list):
        for operation in patch:
            _operate(result, operation)
        return result
    changes = {key: value for key, value in patch.items() if key not in ("apiVersion", "kind")}
    changes["metadata"] = {key: value for key, value in changes["metadata"].items() if key != "name"}
    return _merge(result, changes)


def _merge(old: Object, new: Object) -> Object:
    if new.get("$patch") == "replace":
        return {key: value for key, value in new.items() if key != "$patch"}
    for key, value in new.items():
        if value is None:
            old.pop(key, None)
        elif isinstance(value, dict):
            old[key] = _merge(old.get(key, {}), value)
        elif key in _BY_NAME:
            old[key] = _joined(old.get(key, []), value)
        else:
            old[key] = value
    return old


def _joined(old: list[Object], new: list[Object]) -> list[Object]:
    changes = {item["name"]: item for item in new}
    kept = [_merge(item, changes.pop(item["name"], {})) for item in old]
    return [_merge({}, item) for item in changes.values()] + kept


def _operate(item: Any, operation: Object) -> None:
    """One operation of a JSON patch (RFC 6902)."""
    *parents, last = operation["path"].lstrip("/").split("/")
    for part in parents:
        item = item[int(part)] if isinstance(item, list) else item[part]
    if operation["op"] == "add" and last == "-":
        item.append(operation["value"])
    elif operation["op"] == "replace":
        assert last in item
        item[last] = operation["value"]
    else:
        assert operation["op"] == "test"
        assert item[last] == operation["value"]


def _rename_images(item: Object, images: Any) -> None:
    pod = item.get("spec", {}).get("template", {}).get("spec", {})
    for container in [*pod.get("initContainers", ()), *pod.get("containers", ())]:
        for image in images:
            if container["image"].rpartition(":")[0] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
