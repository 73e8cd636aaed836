"""What check_store.py is made of: a reading of docs/store-format.md that shares no code with the firmware. Standard library alone."""
