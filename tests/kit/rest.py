"""HTTP as any client of an API server speaks it, for tests of what the server answers."""

import asyncio
import http.client
import json


class Caller:
    """Speaks HTTP with a server, from a thread."""

    def __init__(self, server):
        self.server = server

    async def __call__(self, method, path, body=None, content_type="application/json"):
        """Status and document of an answer."""
        status, document, _ = await self.whole(method, path, body, content_type)
        return status, document

    async def whole(self, method, path, body=None, content_type="application/json"):
        """Status, document and warnings of an answer."""
        return await asyncio.to_thread(self._ask, method, path, body, content_type)

    def _ask(self, method, path, body, content_type):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            data = None if body is None else json.dumps(body) if not isinstance(body, str | bytes) else body
            connection.request(method, path, data, {"Content-Type": content_type} if data is not None else {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()), answer.headers.get_all("Warning", [])
        finally:
            connection.close()

    async def watch(self, path):
        """The events of a watch that is over within a second, by type and name."""
        text = await asyncio.to_thread(self._lines, f"{path}{'&' if '?' in path else '?'}watch=true&timeoutSeconds=1")
        return [json.loads(line) for line in text.splitlines()]

    def _lines(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()
