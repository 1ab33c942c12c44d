"""Is the detector as good as the figures that were recorded?

figures     measured, recorded in results/gate.json, and compared: what fell by more than its noise
recordings  figures of recordings of real systems, and of the other simulator
simulated   figures of meshes that are simulated here
pieces      what is measured, in pieces for processes
"""
