"""Rules, entitlements and usage."""
