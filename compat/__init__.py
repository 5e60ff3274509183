"""Foreign clients, tools and brokers against Ottla, judged by results that they report."""
