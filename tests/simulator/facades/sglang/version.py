from sglang import __version__ as __version__
