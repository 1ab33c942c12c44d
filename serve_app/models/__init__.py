"""The life of a model: registry, rollout, shadow, canary and rollback."""
