"""A bundle: a directory with all that a program without a Python needs, to be moved to where there is none.

The standard library, torch and named packages, libraries, and every private copy for so many interpreters.

May be imported by the command line. Nothing in a bundle imports this: it is made once, and then read by
``core/prepared.cc``.
"""
