"""Is the detector as good as the figures that were recorded?

measured    a figure, and how results of several processes become one
recordings  figures of recordings of real systems, and of the other simulator
simulated   figures of meshes that are simulated here
pieces      what is measured, in pieces for processes
recorded    results/gate.json
comparison  what fell by more than its noise, and the table
"""
