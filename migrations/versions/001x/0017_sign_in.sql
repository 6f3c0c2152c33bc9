-- Proofs that were used to sign in, for as long as they could be used again; a digest each.
CREATE TABLE used_proofs (
    digest       bytea PRIMARY KEY CHECK (length(digest) = 32),
    forget_after timestamptz NOT NULL
);
CREATE INDEX used_proofs_old ON used_proofs (forget_after);

-- What vouched for whoever got this token at a sign-in; null for tokens that people made. Such a token always expires.
ALTER TABLE tokens ADD COLUMN method text CHECK (method IN ('aws', 'oidc', 'kubernetes')),
    ADD CONSTRAINT tokens_of_sign_ins_expire CHECK (method IS NULL OR expires_at IS NOT NULL);
