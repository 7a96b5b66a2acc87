"""Commands that ask the running plugin something, or tell it what to do."""
