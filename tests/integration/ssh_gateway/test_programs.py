"""Programs in a job by OpenSSH's own client."""

from tests.integration.ssh_gateway.ssh_clients import SshClient


async def test_a_command_runs_in_the_job_and_its_exit_code_comes_back(alice: SshClient, job: str) -> None:
    ended = await alice.run("box@gw", "echo $CUDA_VISIBLE_DEVICES; echo wrong >&2; exit 7")
    assert (ended.code, ended.out, ended.err.splitlines()[-1]) == (7, b"1\n", "wrong")
    assert (await alice.run(f"{job}@gw", "cat | tr a-z A-Z", input=b"through a pipe")).out == b"THROUGH A PIPE"
