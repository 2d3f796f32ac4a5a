"""What several tests use. A test imports from here, never from another test."""
