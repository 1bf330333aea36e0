"""Tidemark: Apache Samza's stream control on Apache Spark, in a notebook."""
