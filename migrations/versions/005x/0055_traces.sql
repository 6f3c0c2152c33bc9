-- The trace of a job from its submission until it runs, as `traceparent` of W3C Trace Context writes it.
ALTER TABLE reservations ADD COLUMN trace text;
-- Rows from before have none: none of them needs to be read for this.
ALTER TABLE reservations
    ADD CONSTRAINT reservations_trace CHECK (trace ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$') NOT VALID;
