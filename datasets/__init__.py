"""Data as streams: what happened at New York's airports in 2013, and seeded generators of any size.

Each module has `write(log, …)`, which appends its data to streams of a log, and a card (`.md`) with origin, licence,
columns and disorder.
"""

from datasets import airlines, clicks, currency, disorder, flights, synthetic, weather

__all__ = ["airlines", "clicks", "currency", "disorder", "flights", "synthetic", "weather"]
