#!/usr/bin/env bash
# The demo: a ticket shop, and the gateway in front of it with a small rate. Ctrl-C stops both, and with the gateway its store.
# DEMO_SHOP, DEMO_GATEWAY, DEMO_CONSOLE (host:port), DEMO_RATE and DEMO_BURST change where and how fast.
set -euo pipefail
cd "$(dirname "$0")/.."

shop=${DEMO_SHOP:-127.0.0.1:9000}
gateway=${DEMO_GATEWAY:-127.0.0.1:8080}
console=${DEMO_CONSOLE:-127.0.0.1:9090}
rate=${DEMO_RATE:-5}
burst=${DEMO_BURST:-5}

# up HOST:PORT: reports whether a program listens there.
up() { (exec 3<>"/dev/tcp/${1%:*}/${1##*:}") 2>/dev/null; }

for what in "shop $shop DEMO_SHOP" "gateway $gateway DEMO_GATEWAY" "console $console DEMO_CONSOLE"; do
	read -r name addr variable <<<"$what"
	if up "$addr"; then
		echo "run: $addr, where the $name should listen, is in use by another program. Stop that program, or choose another address: make run $variable=${addr%:*}:PORT" >&2
		exit 1
	fi
done
for b in bin/shop bin/gateway; do
	[ -x "$b" ] || {
		echo "run: $b is missing: make build" >&2
		exit 1
	}
done

# Each program has its own process group: Ctrl-C reaches only this script, which stops the gateway first.
set -m
pids=()
stop() {
	trap - EXIT
	# make forwards TERM, which this script may have received before. A second Ctrl-C ends the programs immediately.
	trap '' TERM HUP
	trap 'kill -TERM "${pids[@]}" 2>/dev/null || true' INT
	if [ "${#pids[@]}" -gt 0 ]; then
		echo "stopping" >&2
		local i
		for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
			kill -TERM "${pids[i]}" 2>/dev/null || true
			while kill -0 "${pids[i]}" 2>/dev/null; do
				wait "${pids[i]}" 2>/dev/null || true
			done
		done
	fi
	exit "${1:-0}"
}
trap 'stop 1' EXIT
trap 'stop 0' INT TERM HUP

# await NAME PID HOST:PORT: waits until the program listens. If it fails, its own messages have the reason.
await() {
	local i
	for ((i = 0; i < 300; i++)); do
		if up "$3"; then return 0; fi
		kill -0 "$2" 2>/dev/null || break
		sleep 0.1 &
		wait $! || true
	done
	echo "run: the $1 did not start on $3" >&2
	exit 1
}

bin/shop --listen "$shop" --facts "http://$console/admin/v1/rooms/default/facts" &
pids+=($!)
await shop "${pids[0]}" "$shop"

ANTEROOM_LOG__ACCESS=${ANTEROOM_LOG__ACCESS:-false} \
	bin/gateway --listen "$gateway" --admin-listen "$console" --origin "http://$shop" --rate "$rate" --burst "$burst" &
pids+=($!)
await gateway "${pids[1]}" "$gateway"
await console "${pids[1]}" "$console"

cat <<TEXT

  The shop, through its waiting room   http://$gateway/
  The shop itself, for comparison      http://$shop/
  The operators' console               http://$console/

  The gateway admits $rate visitors a second, at most $burst at one moment. Send a crowd, then open the first URL:

    bin/loadgen --url http://$gateway --visitors 200 --arrive 10s --rate $rate --burst $burst

  Ctrl-C stops everything.

TEXT

while true; do
	for i in 0 1; do
		kill -0 "${pids[i]}" 2>/dev/null || {
			[ "$i" -eq 0 ] && name=shop || name=gateway
			echo "run: the $name has exited" >&2
			exit 1
		}
	done
	sleep 1 &
	wait $! || true
done
