"""The language server: documents, spans, prompts, jobs, hunks. Never imports torch."""
