"""``python -m servewright`` is the command line."""

from servewright.cli.main import main

if __name__ == "__main__":
    main()
