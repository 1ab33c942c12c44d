"""Sends incidents as alerts to Alertmanager and as events to webhooks."""
