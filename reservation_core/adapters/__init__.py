"""The ports' implementations, one package a technology."""
