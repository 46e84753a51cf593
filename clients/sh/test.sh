#!/bin/sh
# Tests of holdfast.sh. The rules of clients/README.md, with a clock and answers that the
# tests set, and then two servers, where HOLDFAST_SERVERS names them:
#
#   go run ./clients/lockd dash clients/sh/test.sh [PART OF A NAME]
#
# CLIENT is the file to test.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "${CLIENT:-$here/holdfast.sh}"
servers=${HOLDFAST_SERVERS-}
W=$(mktemp -d)
export TMPDIR="$W"
trap 'rm -rf "$W"' EXIT
failed=0

fail() {
	echo "    $*" >&2
	exit 1
}
same() { [ "$1" = "$2" ] || fail "got $1, want $2"; }

# world begins a test of rules: 10 s TTL, and 1000 s since the machine was started.
world() {
	_hf_uptime=$W/uptime HOLDFAST_SERVERS=http://127.0.0.1:1,http://127.0.0.1:2 HOLDFAST_TTL=10000
	rm -f "$W"/answer.* "$W/log"
	clock 1000000
	answers=0
	# shellcheck disable=SC2329 # holdfast.sh calls these
	{
		curl() { # answers with the next file, and else as a server would
			printf '%s\n' "$*" >>"$W/log"
			set -- "$W"/answer.*
			if [ -e "$1" ]; then
				mv "$1" "$W/now"
			else
				case $(tail -n 1 "$W/log") in
				*/v1/release) printf '0 200\nresult=released\n' ;;
				*) printf '100 200\nstate=held\ntoken=7\nleft_ms=10000\n' ;;
				esac >"$W/now"
			fi
			read -r delay status <"$W/now"
			pass "$delay"
			[ "$status" != none ] || return 7
			printf 'HTTP/1.1 %s Any\r\n' "$status"
			case $status in
			*proxy) ;;
			*) printf 'Holdfast: 1\r\n\r\nserver=a.1\ngroup=00000001\n' ;;
			esac
			tail -n +2 "$W/now"
		}
		sleep() { pass "$(echo "$1" | tr -d .)"; }
		kill() { echo "kill $*" >>"$W/log"; }
		_hf_loop() { :; }
	}
}
clock() { printf '%d.%02d 0\n' $(($1 / 1000)) $(($1 % 1000 / 10)) >"$W/uptime"; }
pass() {
	_hf_now
	clock $((_hf_ms + $(printf '%s' "$1" | sed 's/^0*\(.\)/\1/')))
}
answer() { # DELAY-MS STATUS LINE...
	answers=$((answers + 1))
	printf '%s %s\n' "$1" "$2" >"$W/answer.$answers"
	shift 2
	[ $# = 0 ] || printf '%s\n' "$@" >>"$W/answer.$answers"
}
requests() { sed -n 's,.*/v1/,,p' "$W/log" | tr '\n' ' '; }
ids() { sed -n 's/.*--data-urlencode id=\([^ ]*\).*/\1/p' "$W/log"; }
held() {
	holdfast_lock n || fail "holdfast_lock: $?"
	_hf_until=$_hf_end _hf_granted=$_hf_ms _hf_doubt='' _hf_resumes=''
}

test_rule_01_ids_are_fresh() {
	world
	_hf_fresh; first=$_hf_id
	_hf_fresh; second=$_hf_id
	same "${first%.*}" "${second%.*}"
	[ "$first" != "$second" ] || fail "one id twice"
	same "$(printf %s "${first%.*}" | tr -d 0-9a-f | wc -c)-${#first}" 0-42
	_hf_pid=''; _hf_fresh
	[ "${_hf_id%.*}" != "${first%.*}" ] || fail "one client part twice"
}
test_rule_02_child_has_no_hold() {
	world
	held
	(holdfast_check n; same $? 74; holdfast_unlock n; same $? 64) || exit 1
	holdfast_check n || fail "the parent lost it"
	same "$(requests)" "acquire "
}
test_rule_03_until_counts_from_the_sending_with_margins() {
	world
	answer 500 200 state=held token=7 left_ms=10000
	held
	same "$_hf_end" $((1000000 + 10000 - 100 - 20))
	world
	_hf_holds=''
	answer 500 200 state=held token=7 left_ms=1000
	held
	same "$_hf_end" $((1000000 + 1000 - 10 - 10))
}
test_rule_04_until_moves_only_forward() {
	world
	held
	was=$_hf_until
	answer 100 200 state=held token=7 left_ms=3000
	_hf_renew
	same "$_hf_until" "$was"
	_hf_renew
	[ "$_hf_until" -gt "$was" ] || fail "until stays"
}
test_rule_05_late_grant_is_released() {
	world
	answer 10500 200 state=held token=6 left_ms=10000
	held
	same "$HOLDFAST_TOKEN" 7
	same "$(requests)" "acquire release acquire "
	same "$(ids | uniq | wc -l | tr -d ' ')" 2
}
test_rule_06_loss_is_final() {
	world
	held
	answer 10000 200 state=held token=7 left_ms=20000
	_hf_renew
	_hf_now
	(_hf_step)
	holdfast_check n
	same $? 74
	same "$(cat "$_hf_dir/lost")" expired
	same "$(requests)" "acquire renew release "
	holdfast_unlock n
	same $? 74
}
test_rule_06_check_compares_clocks() {
	world
	held
	clock $((_hf_until - 20))
	holdfast_check n || fail "lost too early"
	clock "$_hf_until"
	holdfast_check n
	same $? 74
}
test_rule_07_times_of_renewals() {
	world
	held
	same "$_hf_due" $((1000000 + 3333))
	clock "$_hf_due"
	answer 1000 none
	_hf_renew
	_hf_now
	before=$_hf_ms
	[ $((before - 1000000)) -ge $((3330 + 1000 + 240)) ] && [ $((before - 1000000)) -le $((3330 + 1000 + 760)) ] || fail "pause $before"
	_hf_renew
	same "$_hf_due" $((before + 3333))
	same "$(grep -c '127.0.0.1:2/v1/renew' "$W/log")" 1
}
test_rule_08_clock_includes_suspends() {
	same "$_hf_uptime" /proc/uptime
	_hf_now
	read -r up _ </proc/uptime
	[ $((_hf_ms / 1000 - ${up%.*})) -le 1 ] || fail "$_hf_ms is not $up"
	_hf_uptime=$W/uptime
	echo 12.08 1 >"$W/uptime"
	_hf_now
	same $_hf_ms 12080
}
test_rule_09_release_says_moved() {
	for way in false true-none true-server; do
		world
		_hf_holds='' _hf_group=''
		held
		case $way in
		true-none) answer 100 none ;;
		true-server) answer 100 200 state=held token=7 left_ms=9000 server=b.2 ;;
		esac
		_hf_renew
		[ -z "$_hf_moved" ] || : >"$_hf_dir/moved"
		holdfast_unlock n || fail "holdfast_unlock: $?"
		tail -n 1 "$W/log" | grep -q "moved=${way%-*}" || fail "$way: $(tail -n 1 "$W/log")"
	done
}
test_rule_10_ways_out_release() {
	world
	answer 1000 202 state=waiting
	HOLDFAST_WAIT=500
	holdfast_lock n
	same $? 75
	same "$(requests)" "acquire release "
	world
	unset HOLDFAST_WAIT
	for n in 1 2 3 4 5 6; do answer 3000 none; done
	holdfast_lock n
	same $? 69
	requests | grep -q 'release $' || fail "$(requests)"
}
test_rule_10_signal_releases() {
	world
	trap 'holdfast_unlock n; exit 0' TERM
	# shellcheck disable=SC2329 # _hf_acquire calls it
	_hf_pause() { command kill -TERM "$_hf_me"; }
	answer 100 none
	(
		trap 'holdfast_unlock n; exit 0' TERM
		holdfast_lock n
	)
	same "$(requests)" "acquire release "
}
test_rule_11_next_server_has_the_same_id() {
	for way in none 503 500 200proxy; do
		world
		_hf_at=0 _hf_holds=''
		answer 100 $way state=held token=9 left_ms=9000
		held
		same "$HOLDFAST_TOKEN" 7
		same "$(grep -o ':[12]/v1/acquire' "$W/log" | tr '\n' ' ')" ":1/v1/acquire :2/v1/acquire "
		same "$(ids | uniq | wc -l | tr -d ' ')" 1
	done
}
test_rule_11_each_server_is_asked_before_the_wait_ends() {
	for way in '0 0' '4000000000000 11000'; do
		world
		_hf_at=0 _hf_holds='' HOLDFAST_WAIT=${way% *}
		answer "${way#* }" none
		held
		same "$(grep -o ':[12]/v1/acquire' "$W/log" | tr '\n' ' ')" ":1/v1/acquire :2/v1/acquire "
	done
	world
	_hf_holds='' HOLDFAST_WAIT=0
	answer 0 none
	answer 0 none
	holdfast_lock n
	same $? 69
	same "$(requests)" "acquire acquire release "
}
test_rule_11_server_without_its_store_is_left() {
	for answer in 'status=503 code=store_unknown left_ms=9000' result=unknown; do
		world
		_hf_at=0 _hf_holds=''
		held
		[ "$answer" != result=unknown ] || _hf_renew
		# shellcheck disable=SC2086 # words are wanted
		answer 100 200 $answer
		[ "$answer" = result=unknown ] || _hf_renew
		holdfast_unlock n || fail "unlock: $?"
		same "$(grep -o ':[12]/v1/[a-z]*' "$W/log" | tail -n 2 | cut -c 2 | tr '\n' ' ')" "1 2 "
	done
}
test_rule_12_another_group_is_refused() {
	world
	held
	was=$_hf_until
	answer 100 200 group=00000002 state=held token=7 left_ms=99000
	_hf_renew 2>/dev/null
	same "$_hf_until" "$was"
	_hf_holds=''
	answer 100 200 group=00000002 state=held token=7 left_ms=9000
	holdfast_lock n 2>/dev/null
	same $? 64
}
test_rule_13_nests_by_count() {
	world
	held
	holdfast_lock n || fail "again: $?"
	holdfast_unlock n || fail "inner: $?"
	holdfast_check n || fail "ended with the inner one"
	same "$(requests)" "acquire "
	holdfast_unlock n
	same "$(requests)" "acquire release "
}
test_rule_14_token_needs_tls_and_stays_hidden() {
	world
	echo "Authorization: Bearer geheim" >"$W/auth"
	HOLDFAST_AUTH_FILE=$W/auth HOLDFAST_SERVERS=http://lockd1:7420
	holdfast_lock n 2>/dev/null
	same $? 64
	HOLDFAST_SERVERS=https://lockd1:7420
	held
	! grep -q geheim "$W/log" || fail "the token is an argument"
	! grep -qE -- '--insecure|-k ' "$W/log" || fail "TLS is not verified"
	grep -q -- "-H @$W/auth" "$W/log" || fail "no token"
}
test_rule_14_no_proxy_gets_the_token() {
	world
	held
	same "$(grep -c -- '--noproxy \* ' "$W/log")" 1
	HOLDFAST_SERVERS=https://lockd1:7420
	_hf_renew
	same "$(grep -c -- '--noproxy' "$W/log")" 1
}
test_bad_use_has_one_error_at_once() {
	world
	: >"$W/log"
	holdfast_lock 'n
m' 2>"$W/said"
	same $? 64
	same "$(requests)" ''
	world
	TMPDIR=$W/nowhere
	holdfast_lock n 2>"$W/said"
	same $? 64
	same "$(wc -l <"$W/said" | tr -d ' ')" 1
	same "$(requests)" "acquire release "
}
test_errexit_ends_neither_a_call_nor_the_loop() {
	rm -f "$W/log"
	# A shell of its own: in a condition, as tests run here, `set -e` has no effect.
	cat >"$W/errexit.sh" <<-'END'
		set -e
		. "$1"
		curl() { # has an answer for every second request
			printf '%s\n' "$*" >>"$TMPDIR/log"
			[ $(($(wc -l <"$TMPDIR/log") % 2)) = 0 ] || return 7
			printf 'HTTP/1.1 200 OK\r\nHoldfast: 1\r\n\r\nserver=a.1\ngroup=00000001\n'
			case $* in
			*/v1/release*) echo result=released ;;
			*) printf 'state=held\ntoken=7\nleft_ms=10000\n' ;;
			esac
		}
		sleep() { :; }
		_hf_step() {
			echo step >>"$TMPDIR/steps"
			[ "$(wc -l <"$TMPDIR/steps")" -lt 2 ] || exit 0
			false
		}
		holdfast_lock n
		wait "$(sed -n 's/^1 \([0-9]*\) .*/\1/p' "$_hf_dir/hold")" || :
		holdfast_unlock n
	END
	shell=$(readlink "/proc/$$/exe")
	case $shell in */busybox) set -- sh ;; *) set -- ;; esac
	HOLDFAST_SERVERS=http://127.0.0.1:1 "$shell" "$@" "$W/errexit.sh" "${CLIENT:-$here/holdfast.sh}" 2>"$W/said"
	same $? 0
	same "$(wc -l <"$W/steps" | tr -d ' ')" 2
	same "$(requests)" "acquire acquire release release "
}
test_rule_16_release_is_bounded_and_tells() {
	for way in '200 released 0' '200 gone 74' 'none x 0'; do
		# shellcheck disable=SC2086 # words are wanted
		set -- $way
		world
		_hf_holds=''
		held
		answer 100 "$1" "result=$2"
		[ "$1" != none ] || answer 100 200 result=gone
		holdfast_unlock n
		same $? "$3"
	done
	world
	held
	_hf_now
	began=$_hf_ms
	for n in 1 2 3 4 5 6 7 8 9 10 11 12; do answer 400 none; done
	holdfast_unlock n
	same $? 69
	_hf_now
	[ $((_hf_ms - began)) -le $((3333 + 400 + 750)) ] || fail "it took $((_hf_ms - began)) ms"
}
test_rule_17_doubt_is_told_once() {
	world
	held
	_hf_due=99999999
	echo 4711 >"$_hf_dir/cmd"
	_hf_ms=$((_hf_until - 2600))
	clock $_hf_ms
	_hf_step
	same "$(grep -c kill "$W/log")" 0
	_hf_ms=$((_hf_until - 2400))
	_hf_step
	clock $_hf_ms
	_hf_step
	same "$(grep kill "$W/log")" "kill -TERM 4711"
}
test_rule_18_the_next_try_begins_with_resume() {
	world
	held
	answer 100 200 status=404 code=unknown_hold
	answer 100 503 code=store_unknown
	_hf_renew
	_hf_renew
	same "$(requests)" "acquire renew acquire acquire "
	_hf_renew
	same "$(requests)" "acquire renew acquire acquire renew "
	holdfast_check n || fail "lost"
}
test_rule_18_resume_tells_the_rest_of_the_bound() {
	world
	HOLDFAST_MAX_HOLD=60000
	held
	clock $((_hf_ms + 5000))
	_hf_now
	answer 100 200 status=404 code=unknown_hold
	_hf_renew
	tail -n 1 "$W/log" | grep -q 'max_hold_ms=54900 ' || fail "$(tail -n 1 "$W/log")"
}
test_rule_18_a_hold_that_waits_elsewhere_is_resumed() {
	world
	held
	answer 100 200 state=waiting left_ms=9000
	_hf_renew
	tail -n 1 "$W/log" | grep -q 'resume=7 ' || fail "$(tail -n 1 "$W/log")"
	holdfast_check n || fail "lost"
}
test_rule_18_unknown_hold_is_resumed_by_its_token() {
	world
	held
	answer 100 200 status=404 code=unknown_hold
	_hf_renew
	same "$(requests)" "acquire renew acquire "
	tail -n 1 "$W/log" | grep -q 'resume=7 ' || fail "$(tail -n 1 "$W/log")"
	holdfast_check n || fail "lost"
	answer 100 200 status=404 code=unknown_hold
	answer 100 200 state=held token=8 left_ms=9000
	(_hf_renew 2>/dev/null)
	holdfast_check n
	same $? 74
}

# The tests beside servers.
test_server_run_excludes_and_renews() {
	export HOLDFAST_TTL=1500
	# shellcheck disable=SC2016 # the inner shell expands it
	token=$(holdfast_run sh/run sh -c 'sleep 3; echo $HOLDFAST_TOKEN') || fail "holdfast_run: $?"
	holdfast_lock sh/run || fail "holdfast_lock: $?"
	[ "$HOLDFAST_TOKEN" -gt "$token" ] || fail "$HOLDFAST_TOKEN after $token"
	HOLDFAST_WAIT=0 holdfast_run sh/run true
	same $? 75
	holdfast_unlock sh/run || fail "holdfast_unlock: $?"
	holdfast_run sh/run sh -c 'exit 5'
	same $? 5
	echo input | holdfast_run sh/run cat >"$W/out"
	same "$(cat "$W/out")" input
}
test_server_hold_survives_its_server() {
	HOLDFAST_TTL=3000
	holdfast_lock sh/survives || fail "holdfast_lock: $?"
	curl -s -d '' "${servers%,*}/test/down"
	sleep 4
	holdfast_check sh/survives
	rc=$?
	curl -s -d '' "${servers%,*}/test/up"
	same $rc 0
	holdfast_unlock sh/survives || fail "holdfast_unlock: $?"
}
test_server_loss_stops_the_command() {
	HOLDFAST_TTL=1500
	(
		sleep 1
		for s in "${servers%,*}" "${servers#*,}"; do curl -s -d '' "$s/test/down"; done
		sleep 3
		for s in "${servers%,*}" "${servers#*,}"; do curl -s -d '' "$s/test/up"; done
	) &
	holdfast_run sh/loss sleep 30 2>/dev/null
	rc=$?
	wait
	same $rc 74
}
test_server_killed_script_delays_others_by_a_ttl() {
	sh -c ". '${CLIENT:-$here/holdfast.sh}'; HOLDFAST_TTL=1500 holdfast_lock sh/killed; echo held; sleep 60" >"$W/child" &
	child=$!
	until grep -q held "$W/child"; do sleep 0.1; done
	kill -KILL $child
	HOLDFAST_WAIT=30000 holdfast_lock sh/killed || fail "holdfast_lock: $?"
	holdfast_unlock sh/killed || fail "holdfast_unlock: $?"
}
test_server_any_folder_and_field_separator() {
	mkdir "$W/a folder *"
	name="it's \"a\" \$(touch $W/done) \`touch $W/done\` ; | &"
	for ifs in ' ' , ''; do
		(
			IFS=$ifs TMPDIR="$W/a folder *"
			holdfast_lock "$name" || fail "IFS '$ifs': holdfast_lock: $?"
			holdfast_lock other || fail "IFS '$ifs': another: $?"
			holdfast_check "$name" || fail "IFS '$ifs': holdfast_check: $?"
			holdfast_unlock "$name" || fail "IFS '$ifs': holdfast_unlock: $?"
			holdfast_check other || fail "IFS '$ifs': another: $?"
			holdfast_unlock other || fail "IFS '$ifs': another: $?"
			same "$(ls "$TMPDIR")" ''
		) || exit 1
	done
	[ ! -e "$W/done" ] || fail "the name was run"
}
test_server_counts_exactly() {
	echo 0 >"$W/count"
	workers=''
	for n in 1 2 3 4 5; do
		(
			for turn in 1 2 3 4; do
				holdfast_lock sh/count || exit
				read -r value <"$W/count"
				echo $((value + 1)) >"$W/count"
				holdfast_unlock sh/count || exit
			done
		) &
		workers="$workers $!"
	done
	for n in $workers; do wait "$n" || fail "a worker ended with $?"; done
	same "$(cat "$W/count")" 20
}

for name in $(sed -n 's/^\(test_[a-z0-9_]*\)() {$/\1/p' "$here/test.sh"); do
	case $name in
	*"${1-}"*) ;;
	*) continue ;;
	esac
	case $name in
	test_server_*) [ -n "$servers" ] || continue ;;
	esac
	if ($name); then
		echo "ok $name"
	else
		echo "not ok $name"
		failed=1
	fi
done
exit $failed
