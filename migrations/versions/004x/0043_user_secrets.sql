-- Secrets of users, which their jobs get. A value that is not sealed (AES-256-GCM) is refused: see `sealing.py`.
CREATE TABLE user_secrets (
    user_id    bigint NOT NULL REFERENCES users (id),
    name       text NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$'),
    sealed     text NOT NULL
        CHECK (length(sealed) <= 90000 AND sealed ~ '^gpu-dev:sealed:1:[0-9a-f]{8}:[A-Za-z0-9+/]+={0,2}$'),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL CHECK (updated_at >= created_at),
    PRIMARY KEY (user_id, name)
);
-- By the key that sealed the value: a new key finds what others have sealed.
CREATE INDEX user_secrets_key ON user_secrets (split_part(sealed, ':', 4));
