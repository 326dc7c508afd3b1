"""Events of live accounts in SQLite or PostgreSQL."""
