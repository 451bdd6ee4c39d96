"""The bytes of vLLM's answers, one module per endpoint family. Pure: text and counts in, bytes out."""
