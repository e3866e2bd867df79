"""What our patches rely on in vLLM, checked by reading its source."""
