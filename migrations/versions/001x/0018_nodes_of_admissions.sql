-- The node of a pod that uses a booking, where whoever reported the pod said it: what is unused is known for each node.
ALTER TABLE admissions ADD COLUMN node text CHECK (length(node) BETWEEN 1 AND 253);
