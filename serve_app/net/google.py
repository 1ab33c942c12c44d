"""Google Cloud tokens for its managed Prometheus.

google-auth finds the application default credentials: the pod's, the machine's, or the file that
``GOOGLE_APPLICATION_CREDENTIALS`` names. It is an optional package.
"""

import time
from datetime import UTC

from serve_app.errors import BadSettings
from serve_app.net.http import first_line
from serve_app.net.tokens import DEFAULT_SECONDS, NoToken, TokenSource

SCOPE = "https://www.googleapis.com/auth/monitoring.read"


class GoogleTokens(TokenSource):
    """Tokens for the application default credentials.

    Raises:
        BadSettings: google-auth is not installed.
    """

    def __init__(self) -> None:
        super().__init__()
        try:
            import google.auth.transport.requests
        except ImportError as error:
            raise BadSettings(
                f"google: the package google-auth is not installed ({error}); pip install 'tagae[google]'"
            ) from None
        self._auth = google.auth

    def fetch(self) -> tuple[str, float]:
        try:
            credentials, _ = self._auth.default(scopes=[SCOPE])
            credentials.refresh(self._auth.transport.requests.Request())
        except (self._auth.exceptions.GoogleAuthError, OSError) as error:
            raise NoToken(f"google: no token for the application default credentials: {first_line(error)}") from None
        ends = credentials.expiry  # naive, UTC
        lifetime = ends.replace(tzinfo=UTC).timestamp() - time.time() if ends else DEFAULT_SECONDS
        return str(credentials.token), lifetime
