"""Values of the chart that cover all its branches."""

from typing import Any

DIGEST = "a" * 64
OWN_REDIS: dict[str, Any] = {
    "redis": {"create": False, "url": "rediss://redis.example:6380/1", "address": "redis.example:6379"},
    "settings": {"store": {"ca_file": "/run/secrets/tagae/redis-ca.pem"}},
}
SETTINGS: dict[str, Any] = {
    "settings": {
        "notify": {"alertmanagers": [{"url": "http://alertmanager.monitoring:9093"}]},
        "serve": {"trusted_proxies": ["10.0.0.7/32"], "proxy_user_header": "X-Forwarded-User"},
        "limits": {"max_meshes": 5000},
        "logs": {"format": "json"},
        "meshes": {
            "shop": {"prometheus": "https://prometheus.monitoring:9090", "kubernetes": {}},
            "pay": {"prometheus": "https://prometheus.monitoring:9090"},
        },
        "traces": {"endpoint": "http://otel.monitoring:4318", "headers_file": "/run/secrets/tagae/otlp's-headers"},
    },
    "hosts": ["tagae.example"],
    "events": {"create": True},
    "images": {"pullSecrets": [{"name": "registry"}]},
}
EVERYWHERE: dict[str, Any] = {
    "device": "auto",
    "head": {"nodeSelector": {"pool": "small"}, "tolerations": [{"operator": "Exists"}]},
    "gpu": {"min": 2, "max": 4, "nodeSelector": {"nvidia.com/gpu.product": "H100"}},
    "replicas": {"scorer": {"min": 2}},
    "spread": "DoNotSchedule",
    "upgrade": {"strategy": "None"},
    "networkPolicy": {"create": False},
}
WEIGHTS: dict[str, dict[str, Any]] = {
    "url": {"device": "auto", "weights": {"sha256": DIGEST, "url": "https://models.example/tagae.safetensors"}},
    "signed-url": {"device": "auto", "weights": {"sha256": DIGEST, "urlSecret": {"name": "weights"}}},
    "claim": {"device": "auto", "weights": {"sha256": DIGEST, "claim": {"name": "weights"}}},
}
MESH_WEIGHTS: dict[str, Any] = {
    "device": "auto",
    "weights": {
        **WEIGHTS["signed-url"]["weights"],
        "meshes": {
            "shop": {"sha256": "b" * 64, "url": "https://models.example/shop.safetensors"},
            "bank": {"sha256": "b" * 64, "url": "https://models.example/shop.safetensors"},
            "edge": {"sha256": "c" * 64, "claim": {"name": "weights", "file": "edge.safetensors"}},
            "farm": {"sha256": "d" * 64, "claim": {"name": "weights"}},
        },
    },
}
ONE_POD_REDIS: dict[str, Any] = {"store": {"kind": "redis"}, "redis": {"create": True}}

RAY_SERVICES: dict[str, dict[str, Any]] = {
    "cuda": {"device": "cuda"},
    "own-redis": OWN_REDIS,
    "settings": SETTINGS,
    "placement": EVERYWHERE,
    **{f"weights-{name}": values for name, values in WEIGHTS.items()},
    "weights-of-meshes": MESH_WEIGHTS,
}
DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "redis": ONE_POD_REDIS,
    "settings": SETTINGS,
    "weights-url": {**WEIGHTS["url"], "device": "cpu"},
    "weights-claim": {**WEIGHTS["claim"], "device": "cpu"},
    "weights-of-meshes": {**MESH_WEIGHTS, "device": "cpu"},
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {  # values, and a word of the message
    "a misspelt value": ({"redis": {"crate": True}}, "crate"),
    "an unknown kind": ({"kind": "daemonset"}, "kind"),
    "a local store of several pods": ({"store": {"kind": "local"}}, "store.kind"),
    "GPUs in one pod": ({"kind": "deployment", "device": "cuda"}, "device"),
    "no Redis": ({"redis": {"create": False}}, "url of your own"),
    "a Redis without an address for Ray": ({"redis": {"create": False, "url": "redis://a:1/0"}}, "redis.address"),
    "two Redis": ({"redis": {"url": "redis://a:1/0"}}, "create: false"),
    "weights without a digest": ({"weights": {"url": "https://a/b"}}, "sha256"),
    "a digest without weights": ({"weights": {"sha256": DIGEST}}, "weights"),
    "a short digest": ({"weights": {"sha256": "abc", "url": "https://a/b"}}, "sha256"),
    "two sources of weights": (
        {"weights": {"sha256": DIGEST, "url": "https://a/b", "claim": {"name": "c"}}},
        "weights",
    ),
    "weights of a mesh without a digest": ({"weights": {"meshes": {"shop": {"url": "https://a/b"}}}}, "sha256"),
    "weights of a mesh without a source": (
        {"weights": {"meshes": {"shop": {"sha256": DIGEST}}}},
        "weights.meshes.shop",
    ),
    "more replicas than the most": ({"replicas": {"session": {"min": 9}}}, "replicas.session"),
    "more pods than the most": ({"cpu": {"min": 9}}, "cpu"),
    "a pod that may have no replica": ({"cpu": {"min": 3}}, "cpu.min"),
    "a GPU pod that may have no scorer": ({"device": "cuda", "gpu": {"min": 2}}, "gpu.min"),
}
