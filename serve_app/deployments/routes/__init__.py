"""The routes of the HTTP interface, a file for each subject. ``ROUTERS`` has them all."""

from serve_app.deployments.routes import actions, health, login, page, snapshots, views

ROUTERS = (snapshots.router, views.router, actions.router, health.router, login.router, page.router)
