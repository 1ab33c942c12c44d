"""Exports a checkpoint's network to programs that run without this package."""
