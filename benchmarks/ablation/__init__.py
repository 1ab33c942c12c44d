"""The detector without one of its parts, trained as it is and judged as it is.

variants    what is left out, and how
weights     training them; kept as long as nothing changes that they depend on
"""
