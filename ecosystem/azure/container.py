"""Creates a container with a shared key. Usage: container.py URL ACCOUNT KEY CONTAINER"""
import base64
import email.utils
import hashlib
import hmac
import sys
import urllib.error
import urllib.request


def main(url, account, key, container):
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    # In an emulator's URL the account is the first part of the path, and counts twice.
    resource = f"/{account}/{account}/{container}\nrestype:container"
    signed = "\n".join(["PUT", *[""] * 11, *(f"{k}:{v}" for k, v in headers.items()), resource])
    mac = hmac.new(base64.b64decode(key), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(mac).decode()}"
    request = urllib.request.Request(f"{url}/{account}/{container}?restype=container", data=b"",
                                     method="PUT", headers={**headers, "Content-Type": ""})
    try:
        urllib.request.urlopen(request, timeout=10)
    except urllib.error.HTTPError as e:
        sys.exit(f"{e.code} {e.read().decode()[:500]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
