"""The HTTP interface: the ingress, its routes, and code that the gate shares, such as errors and access control."""
