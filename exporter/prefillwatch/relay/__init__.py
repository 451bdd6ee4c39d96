"""The relay process, our data path: it forwards bytes, timestamps them and understands no more than HTTP framing."""
