"""The documents of the HTTP interface, version 1.

They know names, units and JSON; they know no arrays. ``serve_app.api.codec`` translates them. What a value may be is
written here for readers and clients (OpenAPI) and enforced once, by ``MeshSnapshot.create``. The rows of a snapshot,
thousands of them, are typed dicts: they validate in half the time of models.
"""
