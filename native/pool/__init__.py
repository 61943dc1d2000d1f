"""The pool of private interpreters, for the host program's Python.

May be imported by host programs only, never inside a private interpreter, because it loads the compiled
module. It imports all of native except the diagnostics.
"""
