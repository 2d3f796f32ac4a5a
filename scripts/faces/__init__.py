"""Makes what all languages share of the one declaration, `interface/forebay.toml`."""
