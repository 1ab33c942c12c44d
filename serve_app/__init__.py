"""Telemetry, wire, settings, Ray deployments, state stores and the command line."""
