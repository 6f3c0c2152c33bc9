"""What carries notices away: mail and webhooks, through a network that is guarded."""
