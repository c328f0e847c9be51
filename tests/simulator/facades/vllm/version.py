from vllm import __version__ as __version__
