-- By which resource of the cluster the cards of a node are asked for; null where the cluster has no such thing.
ALTER TABLE nodes ADD COLUMN gpu_resource text CHECK (length(gpu_resource) BETWEEN 1 AND 317);
