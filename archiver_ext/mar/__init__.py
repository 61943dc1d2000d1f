"""Makes, reads and opens TorchServe's archives (.mar) that contain hermetic ones.

May be imported by verify, inspect, packing and commands.
"""
