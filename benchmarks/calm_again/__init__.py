"""Small meshes with a known truth: does an alert end with its harm, does it matter, and does it name the right service?

mesh   21 services with own latencies, failures and loads; nothing of it comes from the simulator
cases  what a scenario changes in the mesh
score  the verdicts of a case, each reduced to a mark
judge  the lines of a case: a number, its limit, OK or FAULT
"""
