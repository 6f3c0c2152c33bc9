"""Ids of jobs, as Slurm's commands take them."""

import re
from collections.abc import Iterable

from gpu_dev.client import GpuDevClient
from gpu_dev.inputs.ids import PREFIX
from gpu_dev.session import whole_id
from gpu_dev.slurm.reading.words import Remark
from gpu_dev.slurm.saying import refuse

_ELEMENT = re.compile(rf"^({PREFIX}\w+)_(\d+)$", re.ASCII | re.IGNORECASE)
"""Slurm's form of `job-7f3k9q2m.3`."""


def whole_ids(client: GpuDevClient, texts: Iterable[str], program: str, consequence: str) -> list[str]:
    """The ids; a number is none, so that ids of Slurm's jobs are never taken for the beginning of one.

    Raises RefusedError and ClientError.
    """
    given = [_ELEMENT.sub(r"\1.\2", text.strip()) for text in texts]
    wrong = [text for text in given if not text.lower().startswith(PREFIX)]
    text = "Ids of jobs begin with job- here. See yours with squeue --me."
    refuse(program, [Remark(None, about, text) for about in wrong], consequence)
    return [whole_id(client, text) for text in given]
