"""The wrapper of every RPC handler of a device plugin and of a DRA driver.

A handler works inside `async with calls.answering(rpc, context) as wrong`. From the outside to the inside, this adds:

    metric      how long the call took, and with which status it ended
    errors      an exception becomes a gRPC status with a sentence that a pod's event can show
    faults      a fault rule delays, hangs or fails the call; the handler itself makes a wrong answer
    deadline    counted from the moment when an injected delay is over
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import structlog

from ..aio.clock import Clock
from ..errors import InjectedError, VdevError
from ..faults.effects import Answer, Rpc
from ..faults.engine import Engine
from ..observe.metrics import Metrics

log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
RIGHT = Answer()  # no fault changes the answer


class RpcCalls:
    """The kubelet's calls about one resource or DRA driver; `kind` is the key of its name in the log.

    `wake` must be called when answers of the fault rules change.
    """

    def __init__(self, name: str, *, kind: str, faults: Engine, metrics: Metrics, clock: Clock) -> None:
        self.closing = False
        self.woken = asyncio.Event()  # set, and replaced by another one, at the next `wake`
        self._name = name
        self._logged = {kind: name}
        self._faults = faults
        self._metrics = metrics
        self._clock = clock

    def wake(self) -> None:
        """Ask the fault rules again about calls that they delay or hang."""
        self.woken.set()
        self.woken = asyncio.Event()

    def close(self) -> None:
        """Release hanging calls, and let no call hang from now on."""
        self.closing = True
        self.wake()

    @contextlib.asynccontextmanager
    async def answering(self, rpc: Rpc, context: Context, *, deadline: float | None = None) -> AsyncIterator[Answer]:
        """Surround the work of a handler; yields how a fault rule changes its answer."""
        name, begun, code, why = rpc.value, self._clock.now(), "OK", ""
        try:
            wrong = await self.inject(rpc)
            async with self._clock.timeout(deadline):
                yield wrong
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        except InjectedError as injected:
            code, why = injected.code, str(injected)
        except VdevError as refusal:
            code, why = refusal.grpc_status, str(refusal)
            log.warning("request refused", rpc=name, **self._logged, reason=why)
        except TimeoutError:
            code, why = "DEADLINE_EXCEEDED", f"vdev did not answer {name} for {self._name} in time"
            log.error("request timed out", rpc=name, **self._logged)
        except Exception as failed:
            code, why = "INTERNAL", f"vdev failed in {name} for {self._name}: {failed}"
            log.exception("request failed", rpc=name, **self._logged)
        finally:
            self._metrics.rpc.labels(name, self._name, code).observe(self._clock.now() - begun)
        if code != "OK":
            await context.abort(grpc.StatusCode[code], why)  # always raises

    async def inject(self, rpc: Rpc) -> Answer:
        """Wait, hang or fail as a fault rule says; return how it changes the answer. Raises InjectedError."""
        found = self._faults.on_call(rpc, self._name)
        if found is None:
            return RIGHT
        run, delay = found
        fault = run.rule
        if delay:
            # When the rule is cleared, the call continues at once, with the correct answer.
            end = self._clock.now() + delay
            while run.live and not self.closing and (left := end - self._clock.now()) > 0:
                with contextlib.suppress(TimeoutError):
                    async with self._clock.timeout(left):
                        await self.woken.wait()
            if not run.live:
                return RIGHT
        if fault.hang:
            while run.active and not self.closing:
                await self.woken.wait()
            raise InjectedError("UNAVAILABLE", f"the call hung until the fault {fault.name!r} ended")
        if fault.error is not None:
            raise InjectedError(fault.error.code, fault.error.message)
        return fault.answer or RIGHT
