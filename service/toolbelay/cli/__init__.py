"""The `toolbelay` command. Each command's module is imported only when it runs."""
