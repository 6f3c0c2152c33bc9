-- Until when a pod may still come to be that was asked for and not answered: its cards are not let go before.
ALTER TABLE reservations ADD COLUMN unsettled_until timestamptz;
