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

ROUTERS = [subject.router for subject in (snapshots, views, past, models, incidents, actions, service, login, page)]
