"""The data types that all packages share: samples, tables, findings, row keys, chats."""
