"""Model providers: keys, connection pools, retries and streaming."""
