"""TorchServe's archives (.mar) around hermetic ones: made, read, opened.

May be imported by verify, inspect, packing and commands.
"""
