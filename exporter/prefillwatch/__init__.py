"""prefillwatch: times every streamed token of a vLLM server and names the prompt that froze the others."""

__version__ = "0.1.0"
