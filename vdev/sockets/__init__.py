"""gRPC servers on unix sockets, for any service: the device plugin API, or that of DRA drivers.

`socket_server` binds, serves and stops; `files` knows what a socket's path may be and whether anybody listens at it;
`held_calls` lets calls wait, hang or fail on demand.
"""
