"""Who is behind an account: how many people, and who did what, with numpy alone."""
