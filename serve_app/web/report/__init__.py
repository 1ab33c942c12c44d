"""An incident as one file of HTML: what is wrong, where it began, how it spreads, since when, if planned."""

from serve_app.web.report.page import report

__all__ = ["report"]
