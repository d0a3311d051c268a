#!/usr/bin/env bash
# Builds both programs, starts the server with the real model on free ports, shows boxes on pictures
# and runs a load sized to the machine. Exit code: that of the load run (0 pass, 1 fail, 2 could not).
#
# demo.sh --picture FILE   only writes a drawn scene with its boxes to FILE
set -euo pipefail
cd "$(dirname "$0")/.."

# Half of what one core answers with the default model on a slow machine, at 10 frames per second.
cameras_per_core=3
seconds=10
# A shared machine now and then stands still for longer than an answer may take. The load run is
# repeated when it fails, and the demo fails when every one did.
tries=3

out=target/demo
mkdir -p "$out"

echo "== building (the first time takes some minutes)"
cargo build --release --locked --workspace

echo "== starting vedette-server"
./target/release/vedette-server --addr 127.0.0.1:0 --admin-addr 127.0.0.1:0 \
    >"$out/server.out" 2>"$out/server.log" &
server=$!
stop() {
    kill -TERM "$server" 2>/dev/null && wait "$server" || true
}
trap stop EXIT
for _ in $(seq 300); do
    grep -q '^listening on ' "$out/server.out" && break
    if ! kill -0 "$server" 2>/dev/null; then
        cat "$out/server.log" >&2
        exit 2
    fi
    sleep 0.1
done
addr=$(sed -n 's/^listening on //p' "$out/server.out")
if [ -z "$addr" ]; then
    echo "demo: the server did not start within 30 s; see $out/server.log" >&2
    exit 2
fi
tail -n 1 "$out/server.log"

sim=./target/release/client-sim
if [ "${1:-}" = --picture ]; then
    "$sim" draw "$out/drawn" >/dev/null
    "$sim" detect --addr "$addr" --save "$out/picture" "$out/drawn/03-crossing.jpg"
    cp "$out/picture/03-crossing.boxes.jpg" "$2"
    echo "wrote $2"
    exit 0
fi

echo "== detecting on photographs"
"$sim" detect --addr "$addr" --save "$out" \
    models/cache/pictures/astronaut.png models/cache/pictures/chelsea.png \
    models/cache/pictures/coffee.png

cores=$(nproc)
cameras=$((cores * cameras_per_core))
echo
echo "== load: $cameras cameras on $cores cores, which the simulator shares with the server"
for try in $(seq "$tries"); do
    verdict=0
    "$sim" run --addr "$addr" --cameras "$cameras" --fps 10 --seconds "$seconds" \
        --json "$out/run.json" || verdict=$?
    [ "$verdict" -eq 1 ] && [ "$try" -lt "$tries" ] || break
    echo "== again (try $((try + 1)) of $tries): one stall of the machine is enough to fail"
done
exit "$verdict"
