"""The schemas of ``torch.ops.tagae`` and of the passes. A compiled library is only used with those it was built for."""

SCHEMAS = {
    "attend": (
        "(Tensor query, Tensor key, Tensor trajectory, Tensor trajectory_weight, Tensor attention, Tensor indptr, "
        "Tensor indices, Tensor edges, float negative_slope) -> (Tensor, Tensor)"
    ),
    "project_and_attend": (
        "(Tensor x, Tensor query_weight, Tensor query_bias, Tensor key_weight, Tensor key_bias, Tensor trajectory, "
        "Tensor trajectory_weight, Tensor attention, Tensor trajectory_value, Tensor indptr, Tensor indices, "
        "Tensor edges, float negative_slope) -> Tensor"
    ),
    "join_sides": (
        "(Tensor x, Tensor weight, Tensor bias, Tensor callers, Tensor callees, Tensor norm_weight, Tensor norm_bias, "
        "float eps) -> Tensor"
    ),
    "perceptron": (
        "(Tensor rows, Tensor? others, Tensor? positions, Tensor hidden_weight, Tensor hidden_bias, Tensor weight, "
        "Tensor bias) -> Tensor"
    ),
    "edge_dot": "(Tensor source, Tensor target, Tensor source_index, Tensor target_index) -> Tensor",
}

# Numbers, floats and arrays in the struct of each pass, see csrc/passes.h.
PASSES = {
    "update_filters": (2, 0, 18),
    "calibrate": (3, 0, 18),
    "channel_values": (2, 2, 14),
    "count_failures": (2, 0, 29),
}
