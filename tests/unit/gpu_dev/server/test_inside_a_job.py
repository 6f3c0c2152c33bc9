"""Inside a job the command line extends that job with the job's own token, and no other."""

from gpu_dev.server.connection import resolve_job

_INSIDE = {"GPU_DEV_JOB_ID": "job-7f3k9q2m", "GPU_DEV_JOB_TOKEN": "secret", "GPU_DEV_JOB_SERVER": "http://gpus:8080"}


def test_the_job_itself_is_extended_with_its_token() -> None:
    for named in (None, "job-7f3k9q2m"):
        job, connection = resolve_job(named, _INSIDE) or ("", None)
        assert job == "job-7f3k9q2m"
        assert connection is not None
        assert (connection.server, connection.token) == ("http://gpus:8080", "secret")
        assert "secret" not in repr(connection)


def test_another_job_and_another_place_have_no_such_token() -> None:
    assert resolve_job("job-other", _INSIDE) is None
    assert resolve_job(None, {}) is None
    assert resolve_job(None, {"GPU_DEV_JOB_ID": "job-7f3k9q2m"}) is None
