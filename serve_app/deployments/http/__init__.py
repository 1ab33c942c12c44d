"""The HTTP interface: the ingress, its routes, and what they share with the gate, such as errors and access control."""
