"""Records of our modules reach the handlers of Serve's logger, at its level."""

import logging
from collections.abc import Iterator

import pytest

from serve_app.deployments import logs


class Recorded(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.name} {record.getMessage()}")


@pytest.fixture
def serve_log() -> Iterator[Recorded]:
    serve, recorded = logging.getLogger("ray.serve"), Recorded()
    before = {package: logging.getLogger(package).level for package in logs.PACKAGES}
    level = serve.level
    serve.addHandler(recorded)
    yield recorded
    serve.removeHandler(recorded)
    serve.setLevel(level)
    for package, old in before.items():
        logger = logging.getLogger(package)
        logger.handlers = [one for one in logger.handlers if not isinstance(one, logs.ToServeLog)]
        logger.setLevel(old)
        logger.propagate = True


def test_records_go_to_the_log_of_serve_at_its_level(serve_log: Recorded) -> None:
    logs.install()
    logs.install()
    logging.getLogger("ray.serve").setLevel(logging.INFO)
    log = logging.getLogger("serve_app.stores.sqlite")
    log.debug("too detailed")
    log.info("as set")
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    log.warning("not severe enough")
    logging.getLogger("model.checkpoint").error("severe")
    logging.getLogger("elsewhere").error("of others")
    assert serve_log.texts == ["serve_app.stores.sqlite as set", "model.checkpoint severe"]
