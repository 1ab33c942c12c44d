"""The HTTP interface's documents, version 1.

They have names, units and JSON, but no arrays; ``serve_app.api.codec`` converts them. A value's range is documented
here for readers and clients (OpenAPI), and enforced once, by ``MeshSnapshot.create``. The rows of a snapshot are typed
dicts, since there are thousands of them: they validate in half the time of models.
"""
