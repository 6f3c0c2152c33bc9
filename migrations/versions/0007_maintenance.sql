-- Maintenance windows, the waitlist and what is released unused.
SELECT 1;
