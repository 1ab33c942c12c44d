"""The receivers of notifications: Alertmanager, and one file for each receiver of events."""
