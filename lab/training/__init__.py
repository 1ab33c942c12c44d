"""The training of the shipped weights.

meshes        simulated meshes and recordings of normal traffic, as runs
dataset       runs as examples of the autoencoder
meta_dataset  runs as examples of the meta-model
train         the training itself
"""
