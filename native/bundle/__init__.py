"""A bundle: a directory that lets a program start interpreters on a machine without Python.

It contains the standard library, torch, named packages, libraries, and all private copies for a fixed number
of interpreters.

May be imported by the command line. A bundle contains no part of this package: ``core/prepared.cc`` reads the
finished bundle.
"""
