"""Images decoded and resized once, kept on disk and shared by all models of one geometry."""
