-- One row, which each processor writes at its start: by what ways notifications leave this server. The API refuses targets
-- that no notification could reach.
CREATE TABLE notice_routes (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    mail boolean NOT NULL,
    allow text[] NOT NULL,
    public boolean NOT NULL
);
