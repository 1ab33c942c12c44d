"""The routes of the HTTP interface, a file for each subject. ``ROUTERS`` has them all."""

from serve_app.deployments.http.routes import (
    actions,
    audit,
    health,
    incidents,
    login,
    models,
    oidc,
    page,
    past,
    receivers,
    snapshots,
    views,
)

ROUTERS = (
    snapshots.router,
    views.router,
    past.router,
    models.router,
    incidents.router,
    actions.router,
    health.router,
    audit.router,
    receivers.router,
    login.router,
    oidc.router,
    page.router,
)
