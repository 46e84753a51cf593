#!/bin/sh
# Counts in a file under a lock, for `make clients`: worker.sh NAME CLIENTS TURNS FILE.
# Times are those of the wall clock, by GNU date.
set -u
. "$(dirname "$0")/holdfast.sh"
name=$1 clients=$2 turns=$3 file=$4

say() { printf '{"t":%s,"e":"%s","g":%s,"n":%s%s}\n' "$(date +%s%N)" "$1" "$g" "$n" "${2-}"; }

# end tells the end of the claim, after holdfast_check, on the wall clock.
end() { echo $(($(date +%s%N) + (_hf_end - _hf_ms - 20) * 1000000)); }

# curl asks in each turn with wait_ms 0 first, and writes that there is a place, for the checker's order.
exec 3>&1
curl() {
	case " $*" in
	*/v1/acquire) ;;
	*) command curl "$@"; return ;;
	esac
	if [ -e "$told.$n" ]; then
		command curl "$@"
		return
	fi
	: >"$told.$n"
	for arg; do
		shift
		case $arg in wait_ms=*) arg=wait_ms=0 ;; esac
		set -- "$@" "$arg"
	done
	got=$(command curl "$@") || return
	case $got in
	*left_ms=0*) ;;
	*state=waiting*) say wait >&3 ;;
	esac
	printf '%s\n' "$got"
}
told=$(mktemp)
trap 'rm -f "$told" "$told".*' EXIT

client() {
	[ $((g % 2)) = 0 ] || HOLDFAST_SERVERS=${HOLDFAST_SERVERS#*,},${HOLDFAST_SERVERS%,*}
	turn=0
	while [ "$turn" -lt "$turns" ]; do
		turn=$((turn + 1))
		n=$((g * turns + turn))
		say ask ",\"name\":\"$name\",\"units\":1,\"limit\":1,\"alone\":true"
		holdfast_lock "$name" || return
		holdfast_check "$name" || return
		say got ",\"tok\":$HOLDFAST_TOKEN,\"end\":$(end)"
		read -r value <"$file"
		echo $((value + 1)) >"$file"
		holdfast_check "$name" || return
		say out ",\"end\":$(end)"
		holdfast_unlock "$name" || return
		say "done"
	done
}

started='' g=0
while [ "$g" -lt "$clients" ]; do
	client &
	started="$started $!"
	g=$((g + 1))
done
for pid in $started; do
	wait "$pid" || exit
done
