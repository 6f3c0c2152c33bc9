-- Rules, quotas and usage: policy as data.
SELECT 1;
