-- How the cards of a node are joined, as `nvidia-smi topo -m` shows it, rows apart by `;`; null where nobody says it.
ALTER TABLE nodes ADD COLUMN gpu_links text CHECK (
    length(gpu_links) <= 32768
    AND gpu_links ~ '^X( (SYS|NODE|PHB|PXB|PIX|NV[1-9][0-9]?))*(;(X|SYS|NODE|PHB|PXB|PIX|NV[1-9][0-9]?)( (X|SYS|NODE|PHB|PXB|PIX|NV[1-9][0-9]?))*)*$'
);
