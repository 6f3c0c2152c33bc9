"""Planning: the queue, starts, slots, and plans within bookings."""
