"""The node's label, read from the Kubernetes API with the pod's service account: one GET, again at a slow pace.

The standard library does it: a client library would bring megabytes for one request without a body. A poll and not a
watch, since `get` on nodes is all that it needs; the API server answers from its cache (`resourceVersion=0`), and only
with metadata. Without a service account, or without the permission, the node counts as unlabelled.
"""

import asyncio
import http.client
import json
import os
import ssl
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from ...core.intervals import PRODUCTION
from ...hostfs.look import exists

log = structlog.get_logger(__name__)

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
_REFUSALS = {
    http.HTTPStatus.UNAUTHORIZED: "the API server does not know the service account",
    http.HTTPStatus.FORBIDDEN: "the service account may not get nodes",
    http.HTTPStatus.NOT_FOUND: "the cluster has no node of this name; set --node-name (env NODE_NAME) to spec.nodeName",
}


@dataclass(frozen=True, slots=True)
class Account:
    """Where the API server is and who asks it. `ca` None trusts the system's authorities."""

    host: str
    port: int
    token: Path
    ca: Path | None

    @classmethod
    def in_cluster(cls, environ: Mapping[str, str] = os.environ, directory: Path = _ACCOUNT) -> "Account | None":
        """The pod's own; None outside a cluster, or where the pod has no token."""
        host, token = environ.get("KUBERNETES_SERVICE_HOST"), directory / "token"
        port = environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not port.isdecimal() or not exists(token):
            return None
        ca = directory / "ca.crt"
        return cls(host, int(port), token, ca if exists(ca) else None)


class NodeLabel:
    """The value of one label of one node: `value` is the last one known, empty for none. Says each trouble once."""

    def __init__(
        self, node: str, label: str, account: Account | None, *, within: float = PRODUCTION.api_answer
    ) -> None:
        self.value = ""
        self.trouble = ""
        self.unanswered = False  # the last reading got no answer, so that another one may tell
        self._node = node
        self._label = label
        self._account = account
        self._within = within  # seconds for one request

    async def read(self) -> bool:
        """Ask the API server; True when the value is another one now. What fails leaves the last known value."""
        try:
            value, trouble, self.unanswered = await asyncio.to_thread(self._get), "", False
        except PermissionError as refused:
            value, trouble, self.unanswered = "", str(refused), False
        except (OSError, ValueError, http.client.HTTPException) as failed:
            value, trouble = self.value, f"the API server does not answer: {str(failed) or type(failed).__name__}"
            self.unanswered = True
        if trouble and trouble != self.trouble:
            write = log.warning if self._account else log.info  # nobody meant a label where there is no account
            write("node label not readable; choosing by the node's name", label=self._label, reason=trouble)
        elif self.trouble and not trouble:
            log.info("node label readable again", label=self._label, value=value)
        changed, self.value, self.trouble = value != self.value, value, trouble
        return changed

    def _get(self) -> str:
        """One GET. Raises PermissionError for an answer that will stay so, OSError for one that may not."""
        account = self._account
        if account is None:
            raise PermissionError("no service account")
        context = ssl.create_default_context(cafile=account.ca)
        connection = http.client.HTTPSConnection(account.host, account.port, timeout=self._within, context=context)
        try:
            path = f"/api/v1/nodes/{urllib.parse.quote(self._node, safe='')}?resourceVersion=0"
            headers = {"Authorization": f"Bearer {account.token.read_text().strip()}", "Accept": _METADATA}
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status in _REFUSALS:
            raise PermissionError(_REFUSALS[http.HTTPStatus(answer.status)])
        if answer.status != http.HTTPStatus.OK:
            raise OSError(f"status {answer.status}")
        labels = json.loads(body).get("metadata", {}).get("labels") or {}
        return str(labels.get(self._label, ""))
