"""Stores that several nodes share: Redis or Valkey."""
