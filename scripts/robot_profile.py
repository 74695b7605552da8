"""Print a robot profile of the joints in a URDF (docs/robots.md); a xacro file becomes a URDF first."""

import argparse
import xml.etree.ElementTree as ElementTree  # the file is the user's own
from pathlib import Path

import yaml

UNITS = {"revolute": "rad", "continuous": "rad", "prismatic": "m"}


def joints(text: str) -> list[dict[str, object]]:
    """Return the movable joints in the order of the file, without those that mimic another."""
    found = []
    for joint in ElementTree.fromstring(text).findall("joint"):
        kind = joint.get("type", "")
        if kind not in UNITS or joint.find("mimic") is not None:
            continue
        entry: dict[str, object] = {"name": joint.get("name", "")}
        if UNITS[kind] == "m":
            entry["unit"] = "m"
        limit = joint.find("limit")
        if limit is not None and kind != "continuous":
            low, high = (float(limit.get(end, 0)) for end in ("lower", "upper"))
            entry["range"] = f"{low:.9g}..{high:.9g}"
        if limit is not None and float(limit.get("velocity", 0)) > 0:
            entry["speed"] = float(limit.get("velocity", 0))
        found.append(entry)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("urdf", type=Path)
    urdf = parser.parse_args().urdf
    print(f"datacheck: 1\nname: {urdf.stem}\nabout: {urdf.stem}\njoints:")
    for joint in joints(urdf.read_text(encoding="utf-8")):
        line = yaml.safe_dump(joint, default_flow_style=True, sort_keys=False, width=1 << 20)
        print(f"  - {line.strip()}")


if __name__ == "__main__":
    main()
