"""Which API server, and as whom: a context of a kubeconfig file, else the pod's own service account, else none.

Only where things are is decided here. They are read when a connection is made, and again when they change. It is
apart from `kube`, which code that only names a server does not need.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import UsageError
from .hostfs.files import exists

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NO_SERVER = "no API server is known: give --kubeconfig FILE, or give the pod a service account with its token mounted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerAddress:
    """A context of a kubeconfig, the current one where it is empty; or an address and a service account's directory.

    `ca` None trusts the system's authorities.
    """

    kubeconfig: Path | None = None
    context: str = ""
    address: str = ""
    token: Path | None = None
    ca: Path | None = None

    @property
    def where(self) -> str:
        """Which server, in a few words."""
        return (
            f"{self.kubeconfig}{f', context {self.context}' if self.context else ''}"
            if self.kubeconfig
            else self.address
        )

    @property
    def who(self) -> str:
        """Who asks, for a sentence."""
        return f"the user of {self.kubeconfig}" if self.kubeconfig else "the service account"


def find_server(
    *,
    kubeconfig: Path | None = None,
    context: str = "",
    environ: Mapping[str, str] = os.environ,
    account: Path = ACCOUNT,
) -> ApiServerAddress | None:
    """What is given, else the pod's own; None outside a cluster, or where the pod has no token. Looks at files."""
    if kubeconfig:
        return ApiServerAddress(kubeconfig=kubeconfig, context=context)
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca = account / "token", account / "ca.crt"
    if not host or not port.isdecimal() or not exists(token):
        return None
    address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return ApiServerAddress(address=address, token=token, ca=ca if exists(ca) else None)


def needed_server(*, kubeconfig: Path | None, context: str) -> ApiServerAddress:
    """As `find_server`. Raises UsageError where there is none, or no such file."""
    if kubeconfig and not exists(kubeconfig):
        raise UsageError(f"the kubeconfig file {kubeconfig} does not exist")
    if server := find_server(kubeconfig=kubeconfig, context=context):
        return server
    raise UsageError(NO_SERVER)
