"""Autobahn's case modules under Python 3: they play a server or a client. Runs in the interpreter that install.py sets up."""
