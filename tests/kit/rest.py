"""A plain HTTP client, for tests of the API server."""

import asyncio
import http.client
import json


class Caller:
    """Sends requests to a server, from a thread."""

    def __init__(self, server):
        self.server = server

    async def __call__(self, method, path, body=None, content_type="application/json", accept="application/json"):
        """Send a request. Returns the status and the document of the answer."""
        return await asyncio.to_thread(self._ask, method, path, body, content_type, accept)

    def _ask(self, method, path, body, content_type, accept):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            data = None if body is None else json.dumps(body) if not isinstance(body, str | bytes) else body
            sent = {"Content-Type": content_type} if data is not None else {}
            connection.request(method, path, data, {"Accept": accept, **sent})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    async def watch(self, path, accept="application/json"):
        """Watch for a fifth of a second. Returns the events."""
        path = f"{path}{'&' if '?' in path else '?'}watch=true&timeoutSeconds=0.2"
        text = await asyncio.to_thread(self._lines, path, accept)
        return [json.loads(line) for line in text.splitlines()]

    def _lines(self, path, accept):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            connection.request("GET", path, headers={"Accept": accept})
            return connection.getresponse().read().decode()
        finally:
            connection.close()
