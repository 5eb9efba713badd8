#!/bin/sh
# Build the image and run it as compose.yaml does: nobody, read-only, no capabilities. Ends with an error unless it becomes
# healthy and answers a question.   tests/container.sh [INDEX with CPU builds of torch]
set -eu
cd "$(dirname "$0")/.."
command -v docker > /dev/null || { echo "docker is not installed"; exit 1; }
token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
docker build -t vcc:test ${1:+--build-arg TORCH_FROM="$1"} .
name=vcc-test-$$
docker run -d --name "$name" -e VCC_TOKEN="$token" -p 127.0.0.1::8756 --read-only --tmpfs /tmp:mode=1777,size=256m \
  --tmpfs /data:uid=10001,mode=700 --cap-drop ALL --security-opt no-new-privileges:true --pids-limit 256 vcc:test
trap 'docker logs "$name" | tail -20; docker rm -f "$name" > /dev/null' EXIT
for _ in $(seq 60); do
  state=$(docker inspect -f '{{.State.Health.Status}}' "$name")
  [ "$state" = healthy ] && break
  sleep 2
done
[ "$state" = healthy ] || { echo "not healthy after two minutes: $state"; exit 1; }
[ "$(docker exec "$name" id -u)" = 10001 ]
if docker exec "$name" sh -c 'echo > /opt/vcc/x' 2> /dev/null; then echo "the root is not read-only"; exit 1; fi
address=http://$(docker port "$name" 8756 | head -1)
id=$(curl -sf -H "X-Api-Key: $token" -F file=@examples/contract.txt "$address/v1/documents?wait=100" |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
curl -sf -H "X-Api-Key: $token" -H 'content-type: application/json' "$address/v1/documents/$id/ask" \
  -d '{"questions": ["Which law governs this agreement?"], "top": 1}' | grep -q 'New Hampshire'
echo "the container is healthy, runs as nobody on a read-only root, and answers"
