"""Records of speed on the controller: read, exported, compared, drawn."""
