"""Prepares and unprepares claims, one call at a time, even with several instances of the driver.

    GET the claims ─► under the lock, in a thread: prepare each ─► record ─► CDI files ─► answer
                                                      remove CDI files ─► record ─► answer

The process may be killed between any two of these steps, and each call may be repeated. So a claim in the record may
lack its CDI file, which is then written at the next call or start. A CDI file whose claim is not in the record shows
that the record was lost. A pod may use that claim, so the file stays until the claim is unprepared.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import structlog

from ..errors import AllocationError, ApiServerError, HostError, reason_of
from ..hostfs import remove_unfinished
from ..hostfs.locks import DirectoryLock
from ..kube.errors import Denied, Missing
from ..kube.objects import RESOURCE_CLAIMS
from ..pb.dra_v1_pb2 import Claim as ClaimRef  # a claim as the kubelet names it
from .checkpoint import Places, Prepared, read_checkpoint, unknown_cdi_files, write_cdi_file, write_checkpoint
from .claim import Claim, PreparedClaim, read_claim
from .preparation import prepare
from .published_devices import PublishedPool, empty_pool

if TYPE_CHECKING:
    from ..agent.agent import Agent

log = structlog.get_logger(__name__)

DEADLINE = 40.0  # seconds; the kubelet waits 45
_Done = TypeVar("_Done")
Answers: TypeAlias = dict[str, PreparedClaim | str | None]
"""By uid: the prepared claim, None for an unprepared one, or why the call failed."""


class Claims:
    """The claims of one driver on this node.

    `prepared` are the claims that an earlier process recorded. `on_change` gets all prepared claims when they or
    `trouble` have changed.
    """

    def __init__(
        self, agent: "Agent", places: Places, prepared: Prepared, on_change: Callable[[Prepared], None]
    ) -> None:
        self.pool: PublishedPool = empty_pool(places.driver)
        """The published devices. It is replaced as a whole, because threads read it."""
        self.prepared = prepared
        """The prepared claims when the record was last read. Another instance may have prepared more since then."""
        self.preparing: frozenset[str] = frozenset()
        """The published devices of claims that are being prepared, from before `pool` is read for them until they are
        in `prepared`. Read this before `prepared`, so that no device is missing from both.
        """
        self.trouble = ""
        """Why the files cannot be used, or the empty string."""
        self._agent = agent
        self._places = places
        self._driver = places.driver
        self._on_change = on_change
        self._intervals, self._clock = agent.options.timing
        self._recorded: Prepared = {}  # the content of the record when it was last read
        self._one_at_a_time = asyncio.Lock()
        self._lock = DirectoryLock(places.directory)
        self._reported: tuple[Prepared, str] = {}, ""

    async def prepare(self, refs: Sequence[ClaimRef]) -> Answers:
        """Prepare claims. Returns by uid the prepared claim, or a sentence that says why it cannot be prepared."""

        async def work() -> Answers:
            found = await asyncio.gather(*map(self._read, refs), return_exceptions=True)
            read = {ref.uid: claim for ref, claim in zip(refs, found, strict=True)}
            return await self.exclusively(lambda: self._prepare_all(read))

        return await self._answers(refs, work(), "prepared")

    async def unprepare(self, refs: Sequence[ClaimRef]) -> Answers:
        """Unprepare claims. Returns by uid None, or a sentence that says why that is not possible."""
        uids = [each.uid for each in refs]
        return await self._answers(refs, self.exclusively(lambda: self._unprepare_all(uids)), "unprepared")

    async def _answers(self, refs: Sequence[ClaimRef], work: Awaitable[Answers], done: str) -> Answers:
        """Wait for the answers until the deadline, and log them."""
        answers: Answers
        try:
            async with self._clock.timeout(DEADLINE):
                answers = await work
        except (TimeoutError, HostError) as failed:
            answers = dict.fromkeys((each.uid for each in refs), self._why(failed, done))
        for ref in refs:
            answer = answers[ref.uid]
            named = {"driver": self._driver, "claim": f"{ref.namespace}/{ref.name}", "uid": ref.uid}
            if isinstance(answer, str):
                log.warning(f"claim not {done}", **named, reason=answer)
            else:
                log.info(f"claim {done}", **named)
        return answers

    async def restore(self) -> None:
        """Write missing CDI files of prepared claims, and remove unfinished files of killed processes.

        Raises HostError.
        """
        try:
            async with self._clock.timeout(DEADLINE):
                await self.exclusively(self._restore)
        except TimeoutError as late:
            raise HostError(f"cannot read {self._places.checkpoint}: {self._why(late, 'read')}") from late

    async def _read(self, ref: ClaimRef) -> Claim:
        document = await self._agent.node_api.api.get(RESOURCE_CLAIMS, ref.name, namespace=ref.namespace)
        return read_claim(document, self._driver, uid=ref.uid)

    def _why(self, failed: TimeoutError | HostError, what: str) -> str:
        if isinstance(failed, HostError):
            return str(failed)
        return (
            f"it was not {what} within {DEADLINE:g} s: the API server, the disk, or another vdev that works on claims "
            f"in {self._places.directory} does not answer"
        )

    # --- the lock -----------------------------------------------------------------------------------------------------

    async def exclusively(self, work: Callable[[], _Done]) -> _Done:
        """Run `work` in a thread, under the lock that all calls and all instances of the driver share.

        `work` always completes and holds the lock until then, even if the caller is cancelled.
        """
        while True:
            await self._one_at_a_time.acquire()
            try:
                working = asyncio.get_running_loop().run_in_executor(None, self._under_lock, work)
            except BaseException:  # no thread could be started
                self._one_at_a_time.release()
                raise
            result = asyncio.shield(working)  # before the next line, so that the caller resumes before other listeners
            working.add_done_callback(self._done)
            if done := await result:
                return done[0]
            await self._clock.sleep(self._intervals.look_at_claims_lock)

    def _under_lock(self, work: Callable[[], _Done]) -> tuple[_Done] | None:
        """Return the result of `work` in a tuple; None if another instance holds the lock."""
        directory, root = self._places.directory, self._places.kubelet_dir
        if not os.path.isdir(root):
            raise HostError(f"there is no directory {root}; is --kubelet-dir right, and mounted?")
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o750)
            if not self._lock.take():
                return None
        except OSError as failed:
            raise HostError(f"cannot use the directory {directory}: {reason_of(failed)}") from failed
        try:
            return (work(),)
        finally:
            self.preparing = frozenset()

    def _done(self, working: asyncio.Future[Any]) -> None:
        if not working.cancelled():
            working.exception()  # mark it as retrieved, so that asyncio does not log it: the caller gets it
        self._lock.release()
        self._one_at_a_time.release()
        if (self.prepared, self.trouble) != self._reported:
            self._reported = self.prepared, self.trouble
            self._on_change(self.prepared)

    # --- in a thread, under the lock ----------------------------------------------------------------------------------

    def _known(self) -> dict[str, PreparedClaim]:
        """The claims in the record, and claims of this process that the record has lost.

        Another instance that unprepares a claim removes its CDI file and then writes the record. So if there is no
        record, or the CDI file exists, the claim was not unprepared.
        """
        file, recorded = self._places.checkpoint, None
        try:
            recorded = read_checkpoint(file)
        except ValueError as wrong:
            log.error("the record of prepared claims cannot be used", file=str(file), reason=str(wrong))
            with contextlib.suppress(OSError):
                file.replace(file.with_name(f"{file.name}.spoilt"))
        self._recorded = recorded or {}
        known = dict(self._recorded)
        for uid, claim in self.prepared.items():
            if uid not in known and (recorded is None or self._places.cdi_file(uid).exists()):
                log.error("the record of prepared claims has lost a claim; it is written again", claim=str(claim))
                known[uid] = claim
        return known

    def _record(self, known: Prepared) -> None:
        if known != self._recorded:
            write_checkpoint(self._places.checkpoint, known)
        self.prepared = known

    def _prepare_all(self, found: Mapping[str, Claim | BaseException]) -> Answers:
        claims = (each for each in found.values() if isinstance(each, Claim))
        self.preparing = frozenset(result.device for each in claims for result in each.results)
        known, answers = self._known(), Answers()
        for uid, claim in found.items():
            try:
                answers[uid] = known[uid] = self._prepare_one(claim, known.get(uid), known.values())
            except (AllocationError, ApiServerError) as refused:
                answers[uid] = str(refused)
        self._record(known)
        for uid, answer in answers.items():
            # A claim without its CDI file stays in the record: the kubelet asks again, or unprepares it.
            try:
                if isinstance(answer, PreparedClaim):
                    write_cdi_file(self._places.cdi_file(uid), answer)
            except HostError as failed:
                answers[uid] = str(failed)
        return answers

    def _prepare_one(
        self, claim: Claim | BaseException, before: PreparedClaim | None, others: Iterable[PreparedClaim]
    ) -> PreparedClaim:
        if isinstance(claim, BaseException):
            # While the API server does not answer, a claim stays as it was prepared before.
            if before is None or not isinstance(claim, ApiServerError) or isinstance(claim, Missing | Denied):
                raise claim
            return before
        if before is None or not before.is_of(claim):
            before = prepare(claim, self.pool, self._agent.options.node_name)
            if conflict := before.conflict(others):
                raise AllocationError(conflict)
        return before

    def _unprepare_all(self, uids: Sequence[str]) -> Answers:
        known, answers = self._known(), Answers.fromkeys(uids)
        for uid in uids:
            file = self._places.cdi_file(uid)
            try:
                file.unlink(missing_ok=True)
                rest = {other: claim for other, claim in known.items() if other != uid}
                held = {device.raw for claim in rest.values() for device in claim.devices}
                for device in known[uid].devices if uid in known else ():
                    if device.raw not in held:
                        self._agent.placeholders.renew(device.raw)
                known = rest
            except OSError as failed:
                answers[uid] = f"cannot remove {file}: {reason_of(failed)}"
            except HostError as failed:
                answers[uid] = str(failed)
        self._record(known)
        return answers

    def _restore(self) -> None:
        remove_unfinished(self._places.directory, f"{self._places.checkpoint.name}.")
        known = self._known()
        self._record(known)
        self.trouble = ""
        unknown = unknown_cdi_files(self._places, known.values())
        if unknown:
            self.trouble = (
                f"the record {self._places.checkpoint} does not have the claims of {len(unknown)} CDI files in "
                f"{self._places.cdi_dir}, of which the first is {unknown[0]}; these stay until the kubelet unprepares "
                "the claims, and until then vdev cannot detect that a device of theirs is given to another pod"
            )
        for claim in known.values():
            try:
                write_cdi_file(self._places.cdi_file(claim.uid), claim)
            except HostError as failed:
                self.trouble = f"containers of {claim} cannot be started: {failed}"
