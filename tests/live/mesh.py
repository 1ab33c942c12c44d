"""A real mesh on one machine: seven services, an Envoy beside each, a Prometheus that scrapes them."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import httpx
import msgspec

from tests.live.monitor import Monitor, scrape_config
from tests.live.programs import LOOPBACK, Program, free_ports
from tests.live.shop import Fault, Load, Measured, Wiring
from tests.live.sidecars import Sidecar
from tests.live.topology import ENTRY, SHOP
from tests.timing import PATIENCE_SECONDS

NEEDS = ("prometheus", "envoy")


class LiveMesh:
    """A running mesh, from the start of a ``with`` block to its end."""

    def __init__(
        self,
        folder: Path,
        *,
        scrape_seconds: float = 1.0,
        seed: int = 0,
        prometheus_port: int | None = None,
        control_port: int | None = None,
    ) -> None:
        """
        Args:
            folder: for configurations, logs and Prometheus' data.
            scrape_seconds: between two scrapes of a sidecar.
            seed: of durations and calls.
            prometheus_port, control_port: where Prometheus and the shop's control listen; by default free ones.
        """
        self._prometheus_port = prometheus_port
        self._folder = folder
        self._scrape_seconds = scrape_seconds
        self._sidecars = _choose_ports()
        self._wiring = Wiring(
            control=control_port or free_ports(1)[0],
            services={name: one.local for name, one in self._sidecars.items()},
            outbound={name: one.outbound for name, one in self._sidecars.items()},
            entry=self._sidecars[ENTRY].inbound,
            seed=seed,
        )
        self._programs: dict[str, Program] = {}
        self._control = httpx.Client(
            base_url=f"http://{LOOPBACK}:{self._wiring.control}", trust_env=False, timeout=PATIENCE_SECONDS
        )
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:  # if one program does not start, end the others
            opened.enter_context(self._control)
            shop = [sys.executable, "-m", "tests.live.shop", msgspec.json.encode(self._wiring).decode()]
            self._shop = Program("shop", shop, self._folder / "shop.log")
            opened.callback(self._shop.end)
            opened.callback(self._end_programs)
            for name in self._sidecars:
                self._start(name)
            self._monitor = Monitor(
                self._folder,
                [scrape_config(list(self._sidecars.values()), self._scrape_seconds)],
                retention="1h",
                port=self._prometheus_port,
            )
            opened.callback(self._monitor.program.end)
            self._shop.wait_for(f"{self._control.base_url}/ready")
            for name, sidecar in self._sidecars.items():
                self._programs[name].wait_for(sidecar.ready)
            self._monitor.wait()
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def prometheus(self) -> str:
        return self._monitor.url

    @property
    def control(self) -> str:
        """URL of the shop's control."""
        return str(self._control.base_url)

    def load(self, requests_per_second: float, seconds: float, seed: int = 0) -> None:
        """Start sending requests from outside, without waiting for them."""
        self._control.post("/load", content=msgspec.json.encode(Load(requests_per_second, seconds, seed)))

    @property
    def loaded(self) -> bool:
        return bool(self._control.get("/load").json()["running"])

    def slow(self, service: str, seconds: float) -> None:
        """Delay every answer of a service."""
        self._fault(service, Fault(delay_seconds=seconds))

    def fail(self, service: str, share: float) -> None:
        """Make this share of a service's answers fail with 500."""
        self._fault(service, Fault(error_share=share))

    def stop(self, service: str) -> None:
        """Stop a service. Its sidecar still listens and answers 503."""
        self._fault(service, Fault(dead=True))

    def kill(self, service: str) -> None:
        """Stop a service and its sidecar, as if the node of its pod failed."""
        self.stop(service)
        self._programs[service].kill()

    def heal(self) -> None:
        """Restore the initial state."""
        self._control.delete("/faults").raise_for_status()
        for name, sidecar in self._sidecars.items():
            if not self._programs[name].running:
                self._start(name)
                self._programs[name].wait_for(sidecar.ready)

    def measured(self, since: float, until: float) -> dict[tuple[str, str], Measured]:
        """Return client measurements of calls that ended in a period (Unix, s), by source and destination."""
        reply = self._control.get("/measured", params={"since": since, "until": until}).raise_for_status()
        return {(one.source, one.destination): one for one in msgspec.json.decode(reply.content, type=list[Measured])}

    def _end_programs(self) -> None:
        for program in self._programs.values():
            program.end()

    def _start(self, service: str) -> None:
        self._programs[service] = self._sidecars[service].start(self._folder)

    def _fault(self, service: str, fault: Fault) -> None:
        self._control.put(f"/faults/{service}", content=msgspec.json.encode(fault)).raise_for_status()


def _choose_ports() -> dict[str, Sidecar]:
    ports = iter(free_ports(4 * len(SHOP)))
    mine = {service.name: (next(ports), next(ports), next(ports), next(ports)) for service in SHOP}
    return {
        service.name: Sidecar(
            service.name, *mine[service.name], destinations={call.to: mine[call.to][1] for call in service.calls}
        )
        for service in SHOP
    }
