"""From what was measured to files that people read: verdicts, tables and plots as HTML, Markdown, CSV and PNG."""
