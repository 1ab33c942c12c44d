"""The routes of the HTTP interface, a file for each subject. ``ROUTERS`` has them all."""

from serve_app.deployments.http.routes import (
    actions,
    audit,
    embeddings,
    health,
    incidents,
    login,
    models,
    oidc,
    otlp,
    page,
    past,
    receivers,
    snapshots,
    views,
)

ROUTERS = (
    snapshots.router,
    otlp.router,
    views.router,
    past.router,
    embeddings.router,
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
