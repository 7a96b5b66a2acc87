"""Requests to the API server, and copies of its objects.

    find_server(…) ─► ApiServerAddress ─► Api(server) ─┬─ get, list, watch, create, update, patch, apply, delete
                                                       └─ Informer: a copy of objects, kept up to date

An `Api` imports the client library and connects with its first request.
"""
