"""The pool of private interpreters, as the host program's Python sees it.

May be imported by host programs only, never inside a private interpreter: it loads the compiled
module. It imports all of native but the diagnostics.
"""
