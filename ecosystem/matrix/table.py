"""Prints the matrix as a Markdown table. Usage: table.py clients.txt FOLDER OF RESULTS"""
import pathlib
import re
import sys

COLUMNS = {
    "create": "create topic", "auto": "auto-create", "produce": "produce", "consume": "read back",
    "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd", "idempotent": "idempotent",
    "plain": "not idempotent", "acks0": "acks=0", "group": "group, 2 members", "commit": "offsets",
    "resume": "resume", "static": "static, cooperative",
}


def main(clients, results):
    print("| client | version | " + " | ".join(COLUMNS.values()) + " |")
    print("|---|---|" + ":-:|" * len(COLUMNS))
    for line in pathlib.Path(clients).read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, *checks = line.split()
        out = pathlib.Path(results, name + ".txt")
        text = out.read_text() if out.exists() else ""
        version = re.search(rf"^# {re.escape(name)} (.*)$", text, re.M)
        cells = []
        for c in COLUMNS:
            found = re.search(rf"^{re.escape(name)} {c} (PASS|FAIL) ", text, re.M)
            if c not in checks:
                cells.append("–")
            elif not text:
                cells.append("not run")
            else:
                cells.append("✓" if found and found[1] == "PASS" else "✗")
        print(f"| {name} | {version[1] if version else '?'} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(*sys.argv[1:])
