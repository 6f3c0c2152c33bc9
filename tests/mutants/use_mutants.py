"""Guards of samples of GPUs: what is not known is not zero, and no driver stops anything."""

from tests.mutants.mutant import Mutant

SAMPLER = "reservation_core/adapters/local/gpu_use/nvml_sampler.py"
CALLS = "reservation_core/adapters/local/gpu_use/bounded_calls.py"
STORE = "reservation_core/adapters/postgres/gpu_use/gpu_use.py"
STORING = "reservation_core/usecases/gpu_use/store_samples.py"

OF_SAMPLER = "tests/unit/reservation_core/adapters/local/gpu_use/test_nvml_sampler.py"
OF_STORE = "tests/integration/reservation_core/adapters/postgres/gpu_use/test_gpu_use.py"

USE_OF_GPUS = (
    Mutant(
        "what the driver does not say is zero",
        "A value that the driver does not give is unknown, not zero",
        SAMPLER,
        "            if problem.value in self._not_known():\n                return None\n",
        "            if problem.value in self._not_known():\n                return 0  # type: ignore[return-value]\n",
        (f"{OF_SAMPLER}::test_values_that_the_driver_does_not_give_are_unknown",),
    ),
    Mutant(
        "a hanging driver gets another thread each time",
        "A GPU that hangs has one thread, and no other call until it returns",
        CALLS,
        "if key not in self._hanging or not self._hanging[key].is_alive():",
        "if True:",
        (f"{OF_SAMPLER}::test_a_gpu_that_hangs_has_no_sample_and_costs_one_thread",),
    ),
    Mutant(
        "a sample that is not known is stored as zero",
        "A value that was not sampled is null in the database",
        STORE,
        "None if sample.utilisation is None else round(sample.utilisation * _THOUSANDTHS),",
        "round((sample.utilisation or 0) * _THOUSANDTHS),",
        (f"{OF_STORE}::test_what_was_not_sampled_is_not_zero",),
    ),
    Mutant(
        "late samples are in no roll-up",
        "A sample that comes after its minute was rolled up has it rolled up again",
        STORING,
        "        if back != rolled:\n            await uow.gpu_use.move(back)\n",
        "",
        (f"{OF_STORE}::test_a_late_sample_is_rolled_up_all_the_same",),
    ),
)
