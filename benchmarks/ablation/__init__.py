"""The detector without one of its parts, trained and judged like the full detector.

variants    what is left out, and how
weights     training them; kept as long as nothing changes that they depend on
"""
