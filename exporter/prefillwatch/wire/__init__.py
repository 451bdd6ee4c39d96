"""What the bytes mean: requests, server-sent events and answers of the four generating endpoints. Sans-IO."""
