"""What a kubelet asks about a driver on its registration socket: what it is, and what became of its registration."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import structlog

from ..pb import pluginregistration_v1_pb2 as pb
from .servicer import SERVICES

log = structlog.get_logger(__name__)

_TYPE = "DRAPlugin"
_SERVICE = pb.DESCRIPTOR.services_by_name["Registration"].full_name


class RegistrationServicer:
    """What a kubelet asks about the driver whose socket is at `endpoint`.

    `registered` is whether the last kubelet that said something about it took it; `refusal` why it did not.
    """

    def __init__(self, driver: str, endpoint: Path, *, on_change: Callable[[], None]) -> None:
        self.registered = False
        self.refusal = ""
        self.asked = 0
        self._driver = driver
        self._info = pb.PluginInfo(
            type=_TYPE, name=driver, endpoint=str(endpoint.absolute()), supported_versions=SERVICES
        )
        self._on_change = on_change

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        """The RPCs, for a gRPC server on the running loop."""
        methods: dict[str, Any] = {
            "GetInfo": grpc.unary_unary_rpc_method_handler(
                self._get_info, pb.InfoRequest.FromString, pb.PluginInfo.SerializeToString
            ),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
                self._notify, pb.RegistrationStatus.FromString, pb.RegistrationStatusResponse.SerializeToString
            ),
        }
        return (grpc.method_handlers_generic_handler(_SERVICE, methods),)

    def close(self) -> None:
        """Nothing hangs here."""

    def forget(self) -> None:
        """The socket is another one now: no kubelet knows it yet."""
        self.registered, self.refusal = False, ""

    async def _get_info(self, _request: pb.InfoRequest, _context: object) -> pb.PluginInfo:
        self.asked += 1
        return self._info

    async def _notify(self, status: pb.RegistrationStatus, _context: object) -> pb.RegistrationStatusResponse:
        if status.plugin_registered:
            if not self.registered:
                log.info("DRA driver registered", driver=self._driver)
            self.registered, self.refusal = True, ""
        else:
            refusal = f"the kubelet does not take the DRA driver {self._driver}: {status.error or 'it gives no reason'}"
            if refusal != self.refusal:
                log.error("DRA driver refused by the kubelet", driver=self._driver, reason=status.error)
            self.registered, self.refusal = False, refusal
        self._on_change()
        return pb.RegistrationStatusResponse()
