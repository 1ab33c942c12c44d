"""A real OpenID provider: npm's certified ``oidc-provider``, which ``tests/live/install.sh`` installs."""

from pathlib import Path

from tests.live.programs import LOOPBACK, Program, find_program

FOLDER = Path(__file__).parent / "openid"
CLIENT, SECRET = "tagae", "a-secret-of-the-client-0123456789"


def describe_missing() -> str:
    """Return what the provider needs but is missing; empty: nothing."""
    if find_program("node") is None:
        return "no node here; install Node.js 20 or later"
    if not (FOLDER / "node_modules" / "oidc-provider").is_dir():
        return "no oidc-provider here; bash tests/live/install.sh .venv/bin installs it, with npm"
    return ""


class OpenIdProvider(Program):
    """A running provider.

    Args:
        folder: for its log.
        port: to listen on.
        home: URL of the page of the service, with a slash at its end.
    """

    def __init__(self, folder: Path, port: int, home: str) -> None:
        self.url = f"http://{LOOPBACK}:{port}"
        command = ["node", str(FOLDER / "provider.js"), str(port), CLIENT, SECRET, home]
        super().__init__("oidc-provider", command, folder / "oidc-provider.log")
        self.wait_for(f"{self.url}/.well-known/openid-configuration")
