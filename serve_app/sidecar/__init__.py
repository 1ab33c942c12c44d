"""The service in one process without Ray, ``tagae serve --single``, and its gRPC."""
