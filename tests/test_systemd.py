"""deploy/systemd/tagae.service: systemd accepts it, and it has the necessary settings."""

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from serve_app.settings import load

ROOT = Path(__file__).parent.parent
UNIT = ROOT / "deploy" / "systemd" / "tagae.service"


def parse(text: str) -> dict[str, dict[str, list[str]]]:
    """Return the sections of a unit file, each with all values of a key. A key may occur several times."""
    sections: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            sections[section][key].append(value)
    return sections


SECTIONS = parse(UNIT.read_text(encoding="utf-8"))
SERVICE = {key: values[-1] for key, values in SECTIONS["Service"].items()}
ENVIRONMENT = dict(pair.split("=", 1) for line in SECTIONS["Service"]["Environment"] for pair in line.split())


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    systemd_analyze = shutil.which("systemd-analyze")
    if systemd_analyze is None:
        pytest.skip("no systemd-analyze here")
    unit = tmp_path / UNIT.name
    program = tmp_path / "tagae"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = UNIT.read_text(encoding="utf-8")
    unit.write_text(text.replace("ExecStart=/opt/tagae/.venv/bin/tagae", f"ExecStart={program}"))
    found = subprocess.run(
        [systemd_analyze, "verify", "--recursive-errors=no", "--man=no", unit], capture_output=True, text=True
    )
    complaints = [line for line in (found.stdout + found.stderr).splitlines() if UNIT.name in line]
    assert complaints == []
    unit.write_text(text.replace("KillMode=mixed", "KillMode=most"))
    refused = subprocess.run([systemd_analyze, "verify", "--man=no", unit], capture_output=True, text=True)
    assert "kill mode" in refused.stdout + refused.stderr, (
        "systemd must report a wrong unit, or this test proves nothing"
    )


def test_it_is_restarted_a_limited_number_of_times() -> None:
    assert SERVICE["Restart"] in ("always", "on-failure")
    assert 0 < float(SERVICE["RestartSec"]) <= 10
    unit = SECTIONS["Unit"]
    most_starts, seconds = int(unit["StartLimitBurst"][0]), float(unit["StartLimitIntervalSec"][0])
    assert most_starts * float(SERVICE["RestartSec"]) < seconds, "the limit of restarts must be reachable"


def test_it_ends_within_fifteen_seconds_with_all_its_processes() -> None:
    assert (SERVICE["KillMode"], SERVICE["TimeoutStopSec"]) == ("mixed", "15")
    assert SERVICE["Type"] == "exec"  # it does not notify systemd, so Type=notify would never be ready


PERMISSIONS = {
    **dict.fromkeys(("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables"), "yes"),
    **dict.fromkeys(("ProtectKernelModules", "ProtectControlGroups", "RestrictNamespaces", "LockPersonality"), "yes"),
    **dict.fromkeys(("RestrictSUIDSGID", "DynamicUser"), "yes"),
    "ProtectSystem": "strict",
    "CapabilityBoundingSet": "",
    "SystemCallFilter": "@system-service",
    "SystemCallArchitectures": "native",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "UMask": "0077",
}


def test_it_has_few_permissions() -> None:
    assert {key: SERVICE.get(key) for key in PERMISSIONS} == PERMISSIONS


def test_permissions_that_torch_and_ray_need_are_allowed() -> None:
    assert SERVICE.get("MemoryDenyWriteExecute", "no") == "no"
    assert "ProcSubset" not in SERVICE


def test_the_state_directory_is_the_one_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert load().store.path == Path("/var/lib") / SERVICE["StateDirectory"]
    assert SERVICE["StateDirectoryMode"] == "0700"


def test_the_allocator_has_the_settings_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    exported = dict(re.findall(r"^export (\w+) \?= (\S+)$", makefile, re.MULTILINE))
    assert len(exported) == 5
    assert exported.items() <= ENVIRONMENT.items()


def test_the_command_exists() -> None:
    program, command, *_ = SERVICE["ExecStart"].split()
    assert (Path(program).name, command) == ("tagae", "serve")
