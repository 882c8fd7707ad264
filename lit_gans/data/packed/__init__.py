"""The packed store: every image decoded and resized once, in one file that is mapped into memory."""
