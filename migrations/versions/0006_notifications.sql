-- Being told: who wants to hear of what, and by which way.
SELECT 1;
