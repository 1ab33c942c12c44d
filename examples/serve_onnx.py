"""Score meshes over HTTP with the exported network, without TAGAE: ONNX Runtime and numpy are enough.

    tagae export out/tagae.onnx --sample out/shop
    python examples/serve_onnx.py out/tagae.onnx --port 9300
    curl -sS http://127.0.0.1:9300/ --data-binary @out/tagae.onnx.sample.json

A request has the `inputs` of a sample. The answer has the outputs, the model's version, and the reconstruction loss
that a verdict of TAGAE has for the same snapshot. For a mesh of 200 services or more it is null, since TAGAE computes
it on a sample there.
"""

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnxruntime

MAX_SERVICES, NON_CALLS = 199, 5  # with a loss; weight of the non-calls in it, as in docs/models.md


def score(session: onnxruntime.InferenceSession, document: dict) -> dict:
    given = {name: np.array(one["data"], one["type"]).reshape(one["shape"]) for name, one in document["inputs"].items()}
    calls = given["edge_index"].shape[1]
    has_loss = len(given["nodes"]) <= MAX_SERVICES
    outputs = session.run(None, add_pairs(given) if has_loss else given)
    found = dict(zip((one.name for one in session.get_outputs()), outputs, strict=True))
    loss = reconstruction_loss(given, found["structure"]) if has_loss else None
    of_calls = {name: found[name][:calls] for name in ("edge_expected", "structure")}
    version = session.get_modelmeta().custom_metadata_map["model_version"]
    return {"model_version": version, "loss": loss} | {name: one.tolist() for name, one in (found | of_calls).items()}


def add_pairs(given: dict) -> dict:
    """Append each pair of services without a call. No service attends to these, so that nothing else changes."""
    known = np.eye(len(given["nodes"]), dtype=bool)
    known[tuple(given["edge_index"])] = True
    pairs = np.argwhere(~known).T

    def extend(name: str, axis: int, added: np.ndarray) -> np.ndarray:
        return np.concatenate([given[name], added.astype(given[name].dtype)], axis)

    sides = {name: extend(name, 0, np.zeros(pairs.shape[1])) for name in ("attended_callers", "attended_callees")}
    edges = extend("edges", 0, np.zeros((pairs.shape[1], given["edges"].shape[1])))
    return given | sides | {"edges": edges, "edge_index": extend("edge_index", 1, pairs)}


def reconstruction_loss(given: dict, structure: np.ndarray) -> float | None:
    """The loss from the logits of calls, then pairs; None if nothing is called."""
    probability = 1 / (1 + np.exp(-structure.astype(np.float64)))
    callers, callees = given["edge_index"]
    of_calls, of_pairs = np.split(probability, [len(callers)])
    made = (given["edges"][:, -1] > 0) & (callers != callees)
    if not made.any():
        return None
    return float(
        np.square(1 - of_calls[made]).mean() + NON_CALLS * np.square(of_pairs).sum() / max(len(of_pairs), 1)
    ) / (1 + NON_CALLS)


class Handler(BaseHTTPRequestHandler):
    session: onnxruntime.InferenceSession

    def do_POST(self) -> None:
        try:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, answer = 200, score(self.session, json.loads(body))
        except Exception as error:  # ONNX Runtime has errors of its own for inputs of another shape
            status, answer = 400, {"error": f"expected the inputs of a sample: {type(error).__name__}: {error}"}
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=9300)
    options = parser.parse_args()
    Handler.session = onnxruntime.InferenceSession(options.model, providers=["CPUExecutionProvider"])
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
