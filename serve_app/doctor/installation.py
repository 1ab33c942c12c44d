"""Checks whether the service can run here, without starting or changing anything."""

import importlib.util
import os
import platform
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import torch

from kernels import backend, backend_reason, gpu, gpu_files
from model.checkpoint import SHIPPED, load
from model.errors import IncompatibleWeights
from serve_app.access import is_loopback
from serve_app.collect.base import Finding, Outcome
from serve_app.doctor.connections import check_provider, check_receivers, check_tools, check_traces
from serve_app.errors import BadSettings, CorruptState
from serve_app.plugins import STORES
from serve_app.settings import Settings, sources
from serve_app.settings import load as load_settings
from serve_app.settings.access import serve_rules
from serve_app.stores.opening import check_store
from serve_app.stores.sqlite.file import FILE_NAME, count_meshes

PACKAGES = ("serve_app", "model", "partitioning", "kernels", "lab")
LABORATORY = "lab"  # the only package that an installation may lack, as container images do
LIBRARIES = ("ray", "numpy", "pymetis", "pyarrow", "msgspec", "pydantic", "safetensors", "networkx", "fastapi")
EXTRAS = {
    "torch-geometric": "only for data sets and networks of PyTorch Geometric",
    "onnxscript": "only for tagae export to ONNX",
    "metis": "only if METIS comes from the system",
    "redis": "only for store.kind redis",
    "opentelemetry-exporter-otlp-proto-http": "only for traces.endpoint",
    "joserfc": "only for serve.oidc",
    "google-auth": "only for Google's managed Prometheus",
}
MIN_FREE_BYTES = 2**30  # a mesh of 2,000 services and 20,000 calls keeps about 100 MB
PROBE_SECONDS = 6.0  # limit for the answer of a service on the port, which may be starting
MIN_SHARED_BYTES = 256 * 2**20  # Ray's object store on one machine


def check_installation(config: Path | None = None, overrides: Mapping[str, Any] | None = None) -> list[Finding]:
    """Run all checks. For the arguments see :func:`serve_app.settings.load`."""
    try:
        settings = load_settings(config, overrides)
        options = [option for option in sources(config, overrides) if option.origin != "default"]
        origins = ", ".join(f"{option.name} from {option.origin}" for option in options) or "all defaults"
        settings_findings = [Finding("settings", "ok", origins)]
    except BadSettings as error:
        settings = Settings.model_construct()
        remedy = "correct the setting; the other checks assume the defaults"
        settings_findings = [Finding("settings", "problem", str(error), remedy)]
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _python,
        _libraries,
        _names,
        _network,
        _device,
        _machine,
        _store,
        check_traces,
        check_tools,
        check_receivers,
        _port,
        _login,
        check_provider,
        _ray,
    )
    return [*settings_findings, *(finding for check in checks for finding in check(settings))]


def _python(_: Settings) -> Iterator[Finding]:
    version = platform.python_version_tuple()[:2]
    is_tested = ("3", "11") <= tuple(version) <= ("3", "12")
    platform_name = f"{platform.python_version()} on {platform.platform()}"
    yield _finding("python", platform_name, is_tested, "warning", "use Python 3.11 or 3.12; others are not tested")


def _libraries(_: Settings) -> Iterator[Finding]:
    yield Finding("torch", "ok", f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}")
    for name in LIBRARIES:
        version = _version(name)
        remedy = f"pip install {name}, or install tagae with its dependencies"
        yield _finding(name, version or "not installed", bool(version), "problem", remedy)
    for name, use in EXTRAS.items():
        yield Finding(name, "ok", _version(name) or f"not installed; {use}")


def _names(_: Settings) -> Iterator[Finding]:
    """Check where the packages come from: other projects have the same names, as Hugging Face has ``kernels``."""
    owners = metadata.packages_distributions()
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        place = Path(spec.origin).parent if spec and spec.origin else None
        if name == LABORATORY and place is None:
            yield Finding(
                f"package {name}", "ok", "not installed; only for tagae demo, evaluate, export, simulate and train"
            )
            continue
        other_owners = sorted(set(owners.get(name, ())) - {"tagae"})
        location = f"{place}, of {', '.join(owners.get(name, ())) or 'the tagae source tree'}"
        uninstall = f"uninstall {', '.join(other_owners)}, or " if other_owners else ""
        remedy = f"{uninstall}install tagae into an environment of its own"
        yield _finding(f"package {name}", location, place is not None and not other_owners, "problem", remedy)


def _network(settings: Settings) -> Iterator[Finding]:
    yield Finding("kernels", "ok", _describe_kernels("cpu"))
    yield _weights("weights", settings.model.weights or SHIPPED, settings, "model.weights", "the shipped weights")
    for mesh, path in settings.weights_by_mesh.items():
        yield _weights(f"weights of {mesh}", path, settings, f"meshes.{mesh}.weights", "the weights of other meshes")


def _weights(name: str, path: Path, settings: Settings, setting: str, instead: str) -> Finding:
    try:
        return Finding(name, "ok", f"{path}, digest {load(path, network=settings.model.network).digest}")
    except IncompatibleWeights as error:
        return Finding(name, "problem", str(error), f"correct {setting}; the service would use {instead}")


def _device(settings: Settings) -> Iterator[Finding]:
    """Check the GPU. An unusable one is a problem if the settings require it, and a warning if the machine has it."""
    setting = settings.scorer.device
    obstacle = None if setting == "cpu" else gpu.check_gpu()
    if setting == "cpu" or obstacle is not None:
        reason = "no CUDA device can be used: " + obstacle.cause if obstacle else "the CPU"
        state = f"{reason}; scorer.device is {setting}"
        is_ok = setting == "cpu" or (setting == "auto" and not gpu_files.is_here())
        remedy = f"{obstacle.remedy}, or set scorer.device to cpu" if obstacle else ""
        yield _finding("device", state, is_ok, "problem" if setting == "cuda" else "warning", remedy)
        return
    yield Finding("device", "ok", f"{torch.cuda.get_device_name()}; scorer.device is {setting}")
    yield Finding("kernels on the GPU", "ok", _describe_kernels("cuda"))


def _describe_kernels(device: str) -> str:
    reason = backend_reason(device)
    return f"{backend(device)}: {reason}" if reason else backend(device)


def _machine(settings: Settings) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    summary = f"{cores}; model.threads is {settings.model.threads}"
    remedy = "lower model.threads to the number of cores"
    yield _finding("cores", summary, settings.model.threads <= cores, "warning", remedy)
    shared_memory = Path("/dev/shm")
    if shared_memory.exists():
        free = shutil.disk_usage(shared_memory).free
        remedy = "Ray uses slower files instead; in a container, set --shm-size=1g"
        yield _finding("shared memory", f"{free / 2**20:,.0f} MiB free", free >= MIN_SHARED_BYTES, "warning", remedy)


def _store(settings: Settings) -> Iterator[Finding]:
    try:
        check_store(settings.store)
    except BadSettings as error:
        is_redis = settings.store.kind == "redis"
        yield Finding("store", "problem", str(error), "pip install 'tagae[redis]'" if is_redis else "correct store")
        return
    if settings.store.kind not in STORES.own:
        yield Finding("store", "ok", f"of the kind {settings.store.kind}, from another package")
        return
    if settings.store.kind == "redis":
        from serve_app.doctor.redis import check_redis  # needs the client

        yield from check_redis(settings.store)
        return
    place = settings.store.path
    parent = next(p for p in (place, *place.parents) if p.exists())
    writable = parent.is_dir() and os.access(parent, os.W_OK)
    free = shutil.disk_usage(parent).free
    state = f"{place}{'' if place.exists() else ' (does not exist yet)'}, {free / 2**30:,.1f} GiB free"
    if writable:
        remedy = "free some space: a full disk stops verdicts (507)"
        yield _finding("store", state, free >= MIN_FREE_BYTES, "warning", remedy)
    else:
        yield Finding("store", "problem", f"{state}, not writable", "set store.path to another folder")
    if (place / FILE_NAME).exists():
        yield _state(place / FILE_NAME)


def _state(path: Path) -> Finding:
    try:
        meshes = count_meshes(path)
    except CorruptState as error:
        return Finding("state", "problem", str(error))
    except sqlite3.Error as error:
        return Finding("state", "warning", f"{path}: {error}", "the service will move it away and start with a new one")
    return Finding("state", "ok", f"{meshes} mesh{'' if meshes == 1 else 'es'}, {path.stat().st_size / 2**20:,.1f} MiB")


def _port(settings: Settings) -> Iterator[Finding]:
    host, port = settings.serve.host, settings.serve.port
    with socket.socket() as probe:
        probe.settimeout(1.0)
        is_taken = bool(port) and probe.connect_ex((host, port)) == 0
    if is_taken and (running := _find_running(settings)):
        yield Finding("port", "ok", f"{host}:{port} is in use by {running}")
        return
    state = f"{host}:{port} {'is in use by another program' if is_taken else 'is free'}"
    yield _finding("port", state, not is_taken, "warning", "stop the program that uses it, or set serve.port")


def _find_running(settings: Settings) -> str:
    """Describe the TAGAE that listens on the configured port; empty if another program does."""
    scheme = "https" if settings.serve.certificate_file else "http"
    try:  # its certificate may be for another name, and no secret is sent
        url = f"{scheme}://{settings.serve.host}:{settings.serve.port}/healthz"
        answer = httpx.get(url, timeout=PROBE_SECONDS, verify=False, trust_env=False)
        health = answer.json()
    except (httpx.HTTPError, ValueError):
        return ""
    if not isinstance(health, dict):
        return ""
    if "kernels" in health and "version" in health:
        return f"a running TAGAE, version {health['version']}"
    return "a TAGAE that is starting" if str(health.get("type", "")).startswith("urn:tagae:") else ""


def _login(settings: Settings) -> Iterator[Finding]:
    try:
        rules = serve_rules(settings)
    except BadSettings as error:
        yield Finding("login", "problem", str(error), "correct the setting; the service will not start")
        return
    if rules.has_login:
        yield Finding("login", "ok", "requests need a token, a sign-in or a trusted proxy")
    elif is_loopback(rules.host):
        yield Finding("login", "ok", "none; only this machine can reach the service")
    elif rules.allow_anonymous:
        yield Finding(
            "login",
            "warning",
            f"none, and {rules.host} can be reached from other machines",
            "set serve.tokens_file, or let only trusted networks reach the port",
        )
    else:
        yield Finding(
            "login",
            "problem",
            f"none, and {rules.host} can be reached from other machines; the service will not start",
            "set serve.tokens_file (`tagae token create`), or serve.host to 127.0.0.1",
        )


def _ray(_: Settings) -> Iterator[Finding]:
    address = os.environ.get("RAY_ADDRESS", "")
    if address in ("", "local"):
        yield Finding("ray ports", "ok", "the service starts its own Ray on loopback, with a token for each run")
    elif os.environ.get("RAY_AUTH_MODE") == "token":
        yield Finding("ray ports", "ok", f"Ray at {address} requires a token (RAY_AUTH_MODE)")
    else:
        yield Finding(
            "ray ports",
            "warning",
            f"`serve run` uses Ray at {address}, `tagae serve` does not; "
            "anyone who can reach its ports can run code there",
            "set RAY_AUTH_MODE=token on all of its nodes and here, and let only the cluster reach its ports",
        )


def _finding(subject: str, observation: str, is_ok: bool, outcome: Outcome, remedy: str) -> Finding:
    """Return a finding that is ok, or else has this outcome and the remedy."""
    return Finding(subject, "ok", observation) if is_ok else Finding(subject, outcome, observation, remedy)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
