"""What pages: incidents of verdicts as alerts for Alertmanager and as events for webhooks, and their delivery."""
