"""Who starts next and where: the queue, starts, slots, and plans within bookings."""
