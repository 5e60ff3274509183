"""One command-line program per Python client: a scenario as JSON comes in, results go out."""
