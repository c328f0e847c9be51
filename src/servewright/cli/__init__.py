"""The command line. One file a command; nothing slow is imported before a command needs it."""
