"""The service level: what it is, against its targets.

Every process that takes requests counts them in time slots (:mod:`.counts`): the gates, and the collector, which calls
sessions without a gate. Each sends its slots of the window to one session every few seconds. That session adds them up
and compares the sums with the targets (:mod:`.levels`). Every report is whole, so if another session takes over, it has
the slots of all processes that still run within seconds.
"""
