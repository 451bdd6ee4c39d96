"""One request and its answer, in three parts.

``state``   the states and what may follow what, as a table
``core``    events in, commands out: what an exchange does, without a socket, a loop or a clock
``driver``  carries the commands out on sockets, feeds the core, and has the fast lane for tokens
"""
