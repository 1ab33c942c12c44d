"""Recordings as data sets of other libraries.

pyg    windows of snapshots as PyTorch Geometric graphs
"""
