-- What is remembered of pods that people made, while they are there: by whom they are, until when they may stay, and what
-- was done about that. What a pod says of itself can be changed by those who may change pods; this can't.

CREATE TABLE pod_endings (
    pod_uid     text PRIMARY KEY CHECK (length(pod_uid) BETWEEN 1 AND 128),
    namespace   text NOT NULL CHECK (length(namespace) BETWEEN 1 AND 253),
    name        text NOT NULL CHECK (length(name) BETWEEN 1 AND 253),
    seen_at     timestamptz NOT NULL,
    owner       text CHECK (length(owner) BETWEEN 1 AND 253),
    preemptible boolean NOT NULL,
    booking_id  text CHECK (length(booking_id) BETWEEN 1 AND 253),
    ends_at     timestamptz,
    warned_at   timestamptz,
    asked_at    timestamptz,
    refused_at  timestamptz,
    told_at     timestamptz
);

INSERT INTO notice_events (event, kind) VALUES ('pod_end_warned', 'ending_soon');
