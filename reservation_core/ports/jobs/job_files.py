"""Files that users send for their jobs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SentBytes:
    """The bytes that a user's files take, and those of all users."""

    own: int
    everybody: int


@dataclass(frozen=True, slots=True)
class SentFolder:
    """A folder that was not used for long. `is_needed`: an open job begins with it."""

    user_id: int
    digest: bytes
    is_needed: bool


@dataclass(frozen=True, slots=True)
class FileBounds:
    """The most bytes of the files of one folder, of all that a user has sent, and of all that all users have sent."""

    folder: int
    user: int
    everybody: int
