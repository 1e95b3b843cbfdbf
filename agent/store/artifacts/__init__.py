"""Large values: their rows, addressed by hash (`artifact_rows`), and the stores behind them (`blobs`)."""
