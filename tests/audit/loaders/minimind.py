"""Chats as tokens: as they should be, and as they were. A token is a byte."""

import json
import random
from pathlib import Path

import numpy as np

FILE = Path("data/sft_t2t_mini.jsonl")
LENGTH, PAD, IGNORED = 600, 0, -100
SYSTEM = ("You are a helpful assistant.", "You answer briefly.", "You are an expert.")


class Chats:
    """Labels stand at their own token (the model shifts); what is not the assistant's is ignored."""

    def __init__(self):
        self.chats = [
            json.loads(line)["conversations"]
            for line in FILE.read_text(encoding="utf-8").splitlines()
        ]

    def __len__(self):
        return len(self.chats)

    def __getitem__(self, index):
        ids, labels = tokens(self.chats[index])
        return padded(ids, PAD), padded(labels, IGNORED)


class RandomPrompt(Chats):
    """A system prompt of the global generator's choice, for one chat in two."""

    def __getitem__(self, index):
        chat = self.chats[index]
        if random.random() < 0.5:
            chat = [{"role": "system", "content": random.choice(SYSTEM)}, *chat]
        ids, labels = tokens(chat)
        return padded(ids, PAD), padded(labels, IGNORED)


class Shifted(Chats):
    """Labels are shifted by one although the model shifts them again."""

    def __getitem__(self, index):
        ids, labels = super().__getitem__(index)
        return ids, np.append(labels[1:], IGNORED)


def tokens(chat):
    ids, labels = [], []
    for message in chat:
        said = f"<{message['role']}>{message['content']}".encode()
        ids += said
        labels += said if message["role"] == "assistant" else [IGNORED] * len(said)
    return np.array(ids), np.array(labels)


def padded(values, fill):
    out = np.full(LENGTH, fill, np.int64)
    out[: len(values)] = values[:LENGTH]
    return out
