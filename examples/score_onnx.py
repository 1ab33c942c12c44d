"""Score a mesh with the exported network, without TAGAE: ONNX Runtime and numpy are enough.

    tagae export out/tagae.onnx --sample out/shop
    python examples/score_onnx.py out/tagae.onnx out/tagae.onnx.sample.json

Prints the services whose metrics differ most from what their past and their neighbours explain, in sigmas. Ends with
status 1 if the outputs differ from the outputs in the sample.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

TOLERANCE = 1e-4
SHOWN = 5  # services


def main(model: str, sample: str) -> int:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    document = json.loads(Path(sample).read_text(encoding="utf-8"))
    if session.get_modelmeta().custom_metadata_map["model_version"] != document["model_version"]:
        print(f"{sample} is of another model than {model}; export both again", file=sys.stderr)
        return 1
    inputs = {name: array(tensor) for name, tensor in document["inputs"].items()}
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, inputs), strict=True))

    channels = document["channels"]  # of services
    count = len(channels)
    now, observed = inputs["nodes"][:, :count], inputs["nodes"][:, count : 2 * count] > 0
    unexplained = np.where(observed, np.sinh(now) - np.sinh(outputs["node_expected"]), 0)  # sigmas
    for row in np.argsort(-np.abs(unexplained).max(axis=1))[:SHOWN]:
        channel = int(np.abs(unexplained[row]).argmax())
        print(f"{document['services'][row]}: {channels[channel]} {unexplained[row, channel]:+.1f} sigmas")

    for name, tensor in document["outputs"].items():
        expected = array(tensor)
        error = np.abs(outputs[name] - expected) / np.maximum(np.abs(expected), 1)
        if error.size and error.max() > TOLERANCE:
            print(f"{name}: expected at most {TOLERANCE} from the sample, got {error.max():.2g}", file=sys.stderr)
            return 1
    return 0


def array(tensor: dict) -> np.ndarray:
    """A tensor of a sample: its values in row-major order, with its type and its shape."""
    return np.array(tensor["data"], tensor["type"]).reshape(tensor["shape"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
