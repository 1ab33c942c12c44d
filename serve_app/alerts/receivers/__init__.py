"""The receivers of notifications: Alertmanager, and one file for each that gets events."""
