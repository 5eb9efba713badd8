"""What several commands share. None of these files is a command."""
