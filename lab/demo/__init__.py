"""The demo: a simulated mesh, sent over HTTP to a service that the demo starts.

run             the whole run: starts the service, plays the demo, stops the service
story, state    what happens when, and how far it is
controls        the buttons and keys
play            sends the snapshots and reads the verdicts
outcomes        whether the alerts were right
lines           the progress in the terminal
document        the state for the page
remote_control  the panel of the page, an application beside the service; runs in a process of its own
browser         opens the page

Nothing is imported here, so that the process of ``remote_control`` does not load the simulator.
"""
