"""The ``tagae::`` torch ops."""
