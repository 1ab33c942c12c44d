"""Exports of a checkpoint's network to programs that run without this package.

program     the network with flat inputs and outputs, traced by ``torch.export``
standard    our ops in operators that every runtime has
files       .pt2 and .onnx: written, and opened again
check       compares a file with the network it was made from
sample      inputs and outputs of one snapshot as JSON, to test a program in another language with
"""
