"""Attacks on every file format that caunet reads: damaged and hostile input, bounded in time and memory."""
