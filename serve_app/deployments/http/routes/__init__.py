"""The HTTP routes, with one file per subject. ``ROUTERS`` has them all."""

from serve_app.deployments.http.routes import (
    actions,
    incidents,
    login,
    models,
    page,
    past,
    service,
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
    service.router,
    login.router,
    page.router,
)
