#!/bin/bash
# What the tests need from Debian: says what is missing, and as root installs it.
set -euo pipefail
PATH="$PATH:/usr/sbin:/sbin"
missing=()
while read -r program package; do
  [ -e "$program" ] || command -v "$program" >/dev/null || missing+=("$package")
done <<'LIST'
dockerd docker.io
haproxy haproxy
docker-registry docker-registry
mmdebstrap mmdebstrap
tmux tmux
gcc gcc
/usr/include/stdlib.h libc6-dev
ip iproute2
sshd openssh-server
ssh openssh-client
chromium-headless-shell chromium-headless-shell
/usr/share/fonts/truetype/firacode fonts-firacode
/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf fonts-dejavu-core
LIST
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]} (Debian package names); install them, or run this as root on Debian" >&2
  exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
