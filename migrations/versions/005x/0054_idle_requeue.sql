-- A job whose GPUs are idle may go back to the queue. No row from before breaks the check.
ALTER TABLE policies
    DROP CONSTRAINT policies_idle_then_check,
    ADD CONSTRAINT policies_idle_then_check CHECK (idle_then IN ('warn', 'requeue', 'release'));
