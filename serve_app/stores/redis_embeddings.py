"""Embeddings in a Redis, for systems that look services up by name.

Two kinds of hashes, both of which expire:

    PREFIX:{MESH}            observed_at, model, status, mesh_score, dimensions, services
    PREFIX:{MESH}:SERVICE    observed_at, model, deviation, embedding

``embedding`` is float32, little-endian; ``deviation`` is empty if the service was not scored. The braces keep the keys
of a mesh on one node of a Cluster.
"""

import math
from itertools import islice

import numpy as np

from serve_app.api.embeddings import Embeddings
from serve_app.settings import StoreSettings
from serve_app.stores.redis_server import Client, RedisServer

BATCH = 1000  # services of one round trip


class RedisEmbeddings:
    """Writes the embeddings of meshes to a Redis.

    Args:
        settings: with the address of the Redis.
        prefix: of all keys.
        expire_seconds: after which a key that is not written again is deleted.
    """

    def __init__(self, settings: StoreSettings, prefix: str, expire_seconds: int) -> None:
        self._server = RedisServer(settings)
        self._prefix, self._expire = prefix, expire_seconds

    def write(self, embeddings: Embeddings) -> None:
        """Write the services of a mesh, then the mesh: a reader that finds the mesh finds its services.

        Raises:
            StoreGone, StoreFull, Overloaded, CorruptState: as of :meth:`RedisServer.call`.
        """
        key = f"{self._prefix}:{{{embeddings.mesh}}}"
        shared = {"observed_at": embeddings.observed_at.isoformat(), "model": embeddings.model}
        vectors = embeddings.vectors.astype("<f4")
        rows = zip(embeddings.services, embeddings.deviations.tolist(), vectors, strict=True)
        while batch := list(islice(rows, BATCH)):
            self._write(
                {
                    f"{key}:{service}": {
                        **shared,
                        "deviation": "" if math.isnan(deviation) else f"{deviation:.4g}",
                        "embedding": np.ascontiguousarray(vector).tobytes(),
                    }
                    for service, deviation, vector in batch
                }
            )
        about = {
            "status": embeddings.status,
            "mesh_score": f"{embeddings.mesh_score:.6g}",
            "dimensions": str(vectors.shape[1]),
            "services": str(len(vectors)),
        }
        self._write({key: {**shared, **about}})

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def _write(self, hashes: dict[str, dict[str, str | bytes]]) -> None:
        def write(client: Client) -> None:
            with client.pipeline(transaction=False) as pipeline:
                for key, fields in hashes.items():
                    pipeline.hset(key, mapping=fields)  # type: ignore[arg-type]
                    pipeline.expire(key, self._expire)
                pipeline.execute()

        self._server.call(write, is_write=True)
