"""Files of jobs over REST."""

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from gpu_dev.calls.calls import Calls
from gpu_dev.errors import UnexpectedAnswerError
from gpu_dev.server.exchange import PATIENT_S, read_answer
from gpu_dev.server.transport import Body, TransportError
from gpu_dev.wire.job_files.synced import ChunksStored, FolderOut, FolderSend, FolderSent
from reservation_core.domain.sync.folders import FolderEntry, fields_of
from reservation_core.domain.sync.frames import FrameError, read_frames

_BYTES = "application/octet-stream"
_LONG_S = 120.0


class FileCalls(Calls):
    """What you send for jobs, and what they have kept."""

    def put_folder(self, entries: Sequence[FolderEntry]) -> FolderSent:
        """Send what is in a folder; the answer says which chunks are missing."""
        body = FolderSend(entries=[fields_of(entry) for entry in entries])
        return read_answer(
            FolderSent, self._exchange.send("PUT", "/v1/uploads/folders", body=body, silence_s=_LONG_S).content
        )

    def put_chunks(self, pack: bytes) -> ChunksStored:
        """Send chunks, as `frames` has them."""
        answer = self._exchange.send(
            "PUT", "/v1/uploads", raw=pack, headers={"Content-Type": _BYTES}, silence_s=_LONG_S
        )
        return read_answer(ChunksStored, answer.content)

    def results(self, job_id: str) -> FolderOut:
        """What a job has kept."""
        return read_answer(FolderOut, self._exchange.send("GET", f"{_path(job_id)}/results").content)

    def results_data(self, job_id: str, count: int) -> Iterator[tuple[bytes, bytes]]:
        """The chunks of what a job has kept; a broken connection is made again where it broke."""
        done = tried = 0
        while done < count:
            try:
                with self._exchange.stream(
                    f"{_path(job_id)}/results/data", params={"skip": done}, silence_s=_LONG_S
                ) as body:
                    for frame in read_frames(_Reading(body).read):
                        yield frame
                        done, tried = done + 1, 0
            except (FrameError, TransportError) as error:
                if tried == len(PATIENT_S):
                    raise UnexpectedAnswerError("The connection breaks off again and again.") from error
            if done < count:
                if tried == len(PATIENT_S):
                    raise UnexpectedAnswerError("The server sends fewer files than it has listed.")
                self._exchange.sleep(PATIENT_S[tried])
                tried += 1


class _Reading:
    """Reads a stream's parts by count."""

    def __init__(self, body: Body) -> None:
        self._parts = body.chunks()
        self._left = bytearray()

    def read(self, count: int) -> bytes:
        while len(self._left) < count and (part := next(self._parts, b"")):
            self._left += part
        found = bytes(self._left[:count])
        del self._left[:count]
        return found


def _path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"
