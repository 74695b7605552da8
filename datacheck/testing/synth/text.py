"""Sentences in four languages, put together from short lists: plausible lengths and scripts, no meaning."""

from __future__ import annotations

import numpy as np

_ENGLISH = (
    ("the old robot", "a small cup", "the camera", "every student", "our model", "the north river", "a quiet engineer"),
    ("moves", "measures", "describes", "learns from", "compares", "returns to", "explains", "counts"),
    ("the red box", "many short examples", "three careful plans", "the table", "a long report", "the next valley"),
    ("before noon", "with great care", "in the second room", "without any help", "again and again", "every winter"),
)
_CHINESE = (
    ("这位老师", "小机器人", "我们的模型", "图书馆里的学生", "北方的河流", "一只白猫", "这台相机"),
    ("仔细地观察", "慢慢地学习", "清楚地说明", "反复地比较", "认真地记录", "安静地等待"),
    ("桌上的红色盒子", "许多简短的例子", "窗外的雨声", "新的数据集", "远处的山谷", "昨天的实验结果"),
    ("在午饭之前", "在第二个房间里", "没有任何帮助", "每个冬天", "为了下一次旅行", "用很简单的方法"),
)
_SPANISH = (
    ("el niño", "la cámara", "nuestro modelo", "una vieja máquina", "el río"),
    ("mueve", "compara", "describe", "aprende de", "vuelve a"),
    ("la caja roja", "muchos ejemplos", "el próximo valle", "un largo informe"),
    ("antes del mediodía", "con cuidado", "cada invierno", "sin ayuda"),
)
_JAPANESE = (
    ("古いロボットは", "学生たちは", "新しいモデルは", "静かな技師は"),
    ("机の上の箱を", "短い例を", "北の川を", "長い報告書を"),
    ("もう一度", "ゆっくりと", "丁寧に", "毎年の冬に"),
    ("測ります", "比べます", "説明します", "覚えます"),
)
LANGUAGES = {  # parts of a sentence, what joins them, what ends it, share of the texts
    "zh": (_CHINESE, "", "。", 0.55), "en": (_ENGLISH, " ", ". ", 0.30),
    "es": (_SPANISH, " ", ". ", 0.08), "ja": (_JAPANESE, "", "。", 0.07),
}  # fmt: skip
_ASK = {
    "zh": ("请解释", "为什么", "请总结", "怎样理解"),
    "en": ("Explain why", "Summarise how", "Tell me when", "Why is it that"),
    "es": ("Explica por qué", "Resume cómo"), "ja": ("説明してください:", "まとめてください:"),
}  # fmt: skip


def language(rng: np.random.Generator) -> str:
    """Return the language of a text."""
    names = list(LANGUAGES)
    return names[int(rng.choice(len(names), p=[LANGUAGES[n][3] for n in names]))]


def sentence(rng: np.random.Generator, name: str) -> str:
    """Return one sentence; one in three carries a number."""
    parts, joint, end, _ = LANGUAGES[name]
    words = [part[int(rng.integers(len(part)))] for part in parts]
    if rng.uniform() < 0.35:
        words.insert(2, str(int(rng.integers(2, 9999))))
    text = joint.join(words)
    return text[0].upper() + text[1:] + end


def text(rng: np.random.Generator, name: str, characters: float) -> str:
    """Return about so many characters of sentences, at least one sentence."""
    out = sentence(rng, name)
    while len(out) < characters:
        out += sentence(rng, name)
    return out.strip()


def question(rng: np.random.Generator, name: str) -> str:
    """Return a short request."""
    ask = _ASK[name][int(rng.integers(len(_ASK[name])))]
    _, joint, end, _ = LANGUAGES[name]
    body = sentence(rng, name).strip().removesuffix(end.strip())
    return ask + joint + body + ("\uff1f" if joint == "" else "?")


def phrases() -> list[str]:
    """Return the words that texts are made of, in a fixed order (a tokenizer learns its merges from them)."""
    found: list[str] = []
    for name, (parts, joint, _, _) in LANGUAGES.items():
        for phrase in [p for part in parts for p in part] + list(_ASK[name]):
            found += (
                [" " + w for w in phrase.split()] if joint else [phrase[i : i + 2] for i in range(0, len(phrase), 2)]
            )
    return list(dict.fromkeys(found))
