"""Which API server to use, and as which user: a context of a kubeconfig file, else the pod's service account.

This module only decides which files to use; `kube` reads them when it connects, and again when they change.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NO_SERVER = "no API server is known: give --kubeconfig FILE, or give the pod a service account with its token mounted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerAddress:
    """A kubeconfig file with a context, or an address with a service account's files."""

    kubeconfig: Path | None = None
    context: str = ""  # empty: the file's current one
    address: str = ""
    token: Path | None = None
    ca: Path | None = None  # None: trust the system's authorities

    @property
    def where(self) -> str:
        return (
            f"{self.kubeconfig}{f', context {self.context}' if self.context else ''}"
            if self.kubeconfig
            else self.address
        )

    @property
    def who(self) -> str:
        """The user, for messages."""
        return f"the user of {self.kubeconfig}" if self.kubeconfig else "the service account"


def find_server(
    *,
    kubeconfig: Path | None = None,
    context: str = "",
    environ: Mapping[str, str] = os.environ,
    account: Path = ACCOUNT,
) -> ApiServerAddress | None:
    """Return the given server, else that of the pod; None outside a cluster, or if the pod has no token."""
    if kubeconfig:
        return ApiServerAddress(kubeconfig=kubeconfig, context=context)
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca = account / "token", account / "ca.crt"
    if not host or not port.isdecimal() or not os.path.exists(token):
        return None
    address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return ApiServerAddress(address=address, token=token, ca=ca if os.path.exists(ca) else None)
