-- An address from before has no token, and ends when all tokens of its owner are revoked.
ALTER TABLE calendar_feeds ADD COLUMN made_with text REFERENCES tokens (id) ON DELETE CASCADE;
CREATE INDEX calendar_feeds_made_with ON calendar_feeds (made_with);
