"""What happens to a model after it was fitted: forgetting, the audit log, files."""
