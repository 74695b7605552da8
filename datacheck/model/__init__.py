"""The nouns that every room shares: samples, tables of measurements, findings, keys of rows, chats."""
