# Locks of a Holdfast lock server, for POSIX sh with curl, on Linux.
#
#   . ./holdfast.sh
#   holdfast_run invoice/42 ./bill --month 5        # HOLDFAST_TOKEN is in its environment
#
#   trap 'holdfast_unlock nightly' EXIT; trap exit INT TERM HUP   # leaves the queue, too
#   holdfast_lock nightly || exit                   # sets HOLDFAST_TOKEN; a loss sends TERM to the script
#   holdfast_check nightly || exit 74               # before each step that must not happen twice
#
# HOLDFAST_SERVERS     URLs of the servers, separated by spaces or commas (http://127.0.0.1:7420)
# HOLDFAST_AUTH_FILE   file with the line "Authorization: Bearer …"
# HOLDFAST_CACERT      file with the certificate authority of the servers
# HOLDFAST_TTL         milliseconds after which the lock of a dead script is free (30000)
# HOLDFAST_WAIT        milliseconds to wait for the lock; 0: not at all; empty: for ever
# HOLDFAST_KIND, HOLDFAST_NOTE, HOLDFAST_MAX_HOLD (ms)   further fields of the request
#
# Exit statuses are those of `holdfast run`: 64 wrong use, 69 no server, 74 lost, 75 held by
# others, 78 another kind. The numbers in comments are those of the rules in clients/README.md.

_hf_uptime=/proc/uptime
_hf_at=0 _hf_group='' _hf_count=0 _hf_holds='' _hf_pid='' _hf_client='' _hf_asking=''
_hf_cr=$(printf '\r') _hf_nl='
'

_hf_say() { printf 'holdfast: %s\n' "$*" >&2; }

# _hf_now sets _hf_ms to elapsed milliseconds, rounded down to 10; they include suspends (rule 8).
_hf_now() {
	IFS=' ' read -r _hf_up _ <"$_hf_uptime" || { _hf_say "/proc/uptime cannot be read"; return 64; }
	_hf_frac=${_hf_up#*.}
	_hf_ms=$((${_hf_up%.*} * 1000 + (1$_hf_frac - 100) * 10))
}

# _hf_self sets _hf_me to the process, of a subshell too (rule 2).
_hf_self() { IFS=' ' read -r _hf_me _ </proc/self/stat; }

_hf_sleep() { # MILLISECONDS; a signal ends it
	sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))" >/dev/null 2>&1 &
	_hf_sleeper=$!
	wait "$_hf_sleeper"
}

# _hf_pause sleeps for a twentieth of the TTL, with jitter.
_hf_pause() {
	_hf_sleep $((_hf_ttl / 40 + $(od -An -N2 -tu2 /dev/urandom) * _hf_ttl / 20 / 65536))
}

# _hf_id sets _hf_id to a fresh id (rules 1 and 2).
_hf_fresh() {
	_hf_self
	if [ "$_hf_pid" != "$_hf_me" ]; then
		_hf_client=$(od -An -N20 -tx1 /dev/urandom | tr -d ' \n') _hf_pid=$_hf_me _hf_count=0 _hf_holds=''
		[ "${#_hf_client}" = 40 ] || return 64
	fi
	_hf_count=$((_hf_count + 1))
	_hf_id=$_hf_client.$_hf_count _hf_moved='' _hf_first=''
}

# _hf_server sets _hf_url to the server whose turn it is.
_hf_server() {
	_hf_ifs=${IFS-" 	$_hf_nl"} IFS=" ,	$_hf_nl"
	# shellcheck disable=SC2086 # words are wanted
	set -- ${HOLDFAST_SERVERS:-http://127.0.0.1:7420}
	IFS=$_hf_ifs
	[ $# -gt 0 ] || { _hf_say "HOLDFAST_SERVERS names no server"; return 64; }
	_hf_servers=$#
	shift $((_hf_at % $#))
	_hf_url=${1%/} _hf_direct=''
	case $_hf_url in
	https://*) ;;
	http://127.0.0.1:* | http://localhost:* | "http://[::1]:"*) _hf_direct=1 ;; # no proxy gets the token
	http://*) # rule 14
		[ -z "${HOLDFAST_AUTH_FILE-}" ] || { _hf_say "a token needs https://"; return 64; }
		;;
	*) _hf_say "HOLDFAST_SERVERS: an address is http://HOST:PORT or https://HOST:PORT"; return 64 ;;
	esac
}

# _hf_ask PATH LIMIT FIELD... sends a request and reads the answer into _hf_status and the like.
# It returns 1 if it is the next server's turn, and 64 if the program is wrong.
_hf_ask() {
	_hf_status='' _hf_signed='' _hf_from='' _hf_of='' _hf_drains='' _hf_state='' _hf_tok=''
	_hf_left='' _hf_code='' _hf_reason='' _hf_result='' _hf_detail='' _hf_next=''
	_hf_server || return
	_hf_path=$1 _hf_limit=$(printf '%d.%03d' $(($2 / 1000)) $(($2 % 1000)))
	shift 2
	for _hf_arg; do
		shift
		set -- "$@" --data-urlencode "$_hf_arg"
	done
	[ -z "${HOLDFAST_AUTH_FILE-}" ] || set -- -H "@$HOLDFAST_AUTH_FILE" "$@"
	[ -z "${HOLDFAST_CACERT-}" ] || set -- --cacert "$HOLDFAST_CACERT" "$@"
	[ -z "$_hf_direct" ] || set -- --noproxy '*' "$@"
	_hf_now || return
	_hf_c0=$_hf_ms
	_hf_answer=$(curl -q -sS -i --max-time "$_hf_limit" -H 'Accept: text/plain' "$@" "$_hf_url$_hf_path" 2>/dev/null) ||
		_hf_answer=''
	_hf_now
	while IFS= read -r _hf_line; do
		_hf_line=${_hf_line%"$_hf_cr"}
		case $_hf_line in
		HTTP/*) _hf_status=${_hf_line#* } && _hf_status=${_hf_status%% *} ;;
		[Hh]oldfast:*1) _hf_signed=1 ;;
		state=*) _hf_state=${_hf_line#*=} ;;
		token=*) _hf_tok=${_hf_line#*=} ;;
		left_ms=*) _hf_left=${_hf_line#*=} ;;
		status=*) _hf_status=${_hf_line#*=} ;; # of the hold, in an answer to a batch
		code=*) _hf_code=${_hf_line#*=} ;;
		reason=*) _hf_reason=${_hf_line#*=} ;;
		result=*) _hf_result=${_hf_line#*=} ;;
		detail=*) _hf_detail=${_hf_line#*=} ;;
		draining=true) _hf_drains=1 ;;
		server=*) _hf_from=${_hf_line#*=} ;;
		group=*) _hf_of=${_hf_line#*=} ;;
		esac
	done <<-END
		$_hf_answer
	END
	if [ -n "$_hf_of" ] && [ "$_hf_of" != "${_hf_group:=$_hf_of}" ]; then # rule 12
		_hf_say "$_hf_url has another store than the server before"
		return 64
	fi
	case $_hf_signed$_hf_status in
	1[1-4]??) [ -n "$_hf_of" ] || [ "$_hf_status" -ge 300 ] || _hf_next=1 ;;
	*) _hf_next=1 ;; # rule 11
	esac
	if [ -z "$_hf_signed" ] || [ -z "$_hf_from" ] || [ "$_hf_from" != "${_hf_first:=$_hf_from}" ]; then
		_hf_moved=true # rule 9
	fi
	[ "$_hf_result" != unknown ] || _hf_drains=1 # its store did not answer
	[ -z "$_hf_next$_hf_drains" ] || _hf_at=$((_hf_at + 1))
	[ -z "$_hf_next" ]
}

# _hf_take LIMIT FIELD... asks for the lock.
_hf_take() {
	_hf_limit=$1
	shift
	_hf_ask /v1/acquire "$_hf_limit" "$@" "id=$_hf_id" "name=$_hf_name" "ttl_ms=$_hf_ttl" "kind=${HOLDFAST_KIND:-mutex}"
}

# _hf_claim sets _hf_end to the end of the claim that the answer tells (rule 3). It returns 1 if that
# has passed. The clock is rounded down, so it may be 10 ms later than it says.
_hf_claim() {
	case $_hf_left in '' | *[!0-9]*) return 1 ;; esac
	_hf_margin=$(((_hf_left + 99) / 100))
	_hf_end=$((_hf_c0 + _hf_left - _hf_margin))
	[ $_hf_margin -le 20 ] || _hf_margin=20
	_hf_end=$((_hf_end - _hf_margin))
	[ $((_hf_ms + 10)) -lt $_hf_end ] # rule 5
}

# _hf_due sets _hf_due to the time of the next renewal (rule 7).
_hf_renewal() {
	_hf_due=$((_hf_end - _hf_ttl))
	[ $_hf_due -ge "$_hf_c0" ] || _hf_due=$_hf_c0
	_hf_due=$((_hf_due + _hf_ttl / 3))
}

# _hf_release releases the id _hf_id of _hf_name, in a third of the TTL, 5 s at most (rule 16).
_hf_release() {
	_hf_bound=$((_hf_ttl / 3))
	[ $_hf_bound -le 5000 ] || _hf_bound=5000
	_hf_now || return
	_hf_stop=$((_hf_ms + _hf_bound))
	while [ "$_hf_ms" -lt $_hf_stop ]; do
		_hf_ask /v1/release $((_hf_bound / 2 + 1)) "id=$_hf_id" "name=$_hf_name" "moved=${_hf_moved:-false}"
		case $?$_hf_result in
		0released) return 0 ;;
		0gone) [ -z "$_hf_moved" ] && return 74 || return 0 ;;
		64*) return 64 ;;
		esac
		_hf_pause
		_hf_now || return
	done
	return 69
}

# _hf_find NAME sets _hf_dir to the folder of a hold of this process.
_hf_find() {
	_hf_self
	_hf_dir=''
	[ "$_hf_pid" = "$_hf_me" ] || return # rule 2
	_hf_rest=$_hf_holds
	while [ -n "$_hf_rest" ]; do
		_hf_dir=${_hf_rest%%"$_hf_nl"*} _hf_rest=${_hf_rest#*"$_hf_nl"}
		IFS= read -r _hf_known <"$_hf_dir/name" && [ "$_hf_known" = "$1" ] && return
	done
	_hf_dir=''
	return 1
}

# holdfast_check NAME: 0 while the lock is held, else 74. It compares clocks and asks nobody.
holdfast_check() {
	_hf_find "$1" && [ ! -e "$_hf_dir/lost" ] && read -r _hf_end <"$_hf_dir/until" && _hf_now &&
		[ $((_hf_ms + 10)) -lt "$_hf_end" ] || return 74 # rule 6
}

# holdfast_lock NAME waits for the lock, and sets HOLDFAST_TOKEN. The list keeps `set -e` from
# ending the script at the first request without an answer.
holdfast_lock() { _hf_lock "$@" || return; }

_hf_lock() {
	case $1 in *"$_hf_nl"*) _hf_say "a name with a new line cannot be locked"; return 64 ;; esac
	_hf_name=$1 _hf_ttl=${HOLDFAST_TTL:-30000} _hf_left=''
	if _hf_find "$1"; then # rule 13
		holdfast_check "$1" || return
		IFS=' ' read -r _hf_depth _hf_kept <"$_hf_dir/hold" && echo $((_hf_depth + 1)) "$_hf_kept" >"$_hf_dir/hold"
		return
	fi
	_hf_fresh && _hf_now || return
	_hf_heard=$_hf_ms _hf_over=$((_hf_ms + ${HOLDFAST_WAIT:-4000000000000}))
	_hf_asking=$1 _hf_missed=0
	_hf_acquire
	set -- $?
	_hf_asking=''
	return "$1"
}

_hf_acquire() {
	while :; do
		_hf_wait=$((_hf_over - _hf_ms))
		[ $_hf_wait -le $((_hf_ttl / 3)) ] || _hf_wait=$((_hf_ttl / 3 > 1000 ? _hf_ttl / 3 : 1000))
		[ $_hf_wait -le 10000 ] || _hf_wait=10000
		[ $_hf_wait -ge 0 ] || _hf_wait=0
		_hf_ways="wait_ms=$_hf_wait"
		[ "${HOLDFAST_WAIT-}" != 0 ] || _hf_ways=try=true
		_hf_take $((_hf_wait + 5000)) "$_hf_ways" "pid=$_hf_me" "host=$(uname -n)" \
			"note=${HOLDFAST_NOTE-}" ${HOLDFAST_MAX_HOLD:+"max_hold_ms=$HOLDFAST_MAX_HOLD"}
		case $?$_hf_status$_hf_state$_hf_code in
		0200held)
			_hf_heard=$_hf_ms
			if _hf_claim; then
				_hf_begin && return
				_hf_say "$_hf_name: ${TMPDIR:-/tmp} takes no files"
				_hf_release
				return 64
			fi
			_hf_release # rule 5
			_hf_fresh
			;;
		0202*) _hf_heard=$_hf_ms ;;
		0410* | 0409*id_in_use) _hf_heard=$_hf_ms && _hf_fresh ;;
		0425* | 0429*) _hf_heard=$_hf_ms && _hf_pause ;;
		0409held) [ -z "$_hf_moved" ] || _hf_release; return 75 ;;
		0409*) _hf_say "$_hf_name: $_hf_detail"; return 78 ;;
		0*) _hf_say "$_hf_name: ${_hf_detail:-$_hf_code}"; return 64 ;;
		64*) _hf_release; return 64 ;;
		*) _hf_pause ;;
		esac
		_hf_now || return
		_hf_missed=$((${#_hf_next} > 0 ? _hf_missed + 1 : 0))
		if { [ "$_hf_ms" -ge "$_hf_over" ] || [ $((_hf_ms - _hf_heard)) -ge "$_hf_ttl" ]; } &&
			[ $((_hf_missed % _hf_servers)) = 0 ]; then
			set -- $((_hf_missed > 0 ? 69 : 75))
			_hf_release # rule 10
			return "$1"
		fi
	done
}

# _hf_begin notes a hold in a folder of its own, and starts the loop that renews it.
_hf_begin() {
	_hf_dir=$(mktemp -d 2>/dev/null) || return
	printf '%s\n' "$_hf_name" >"$_hf_dir/name" && echo 1 "$_hf_ttl" "$_hf_id" "$_hf_first" >"$_hf_dir/hold" &&
		echo "$_hf_end" >"$_hf_dir/until" && HOLDFAST_TOKEN=$_hf_tok && _hf_renewal || return
	[ -z "$_hf_moved" ] || : >"$_hf_dir/moved"
	_hf_holds=$_hf_holds$_hf_dir$_hf_nl
	_hf_loop </dev/null >/dev/null &
	echo $! >"$_hf_dir/loop"
}

# _hf_loop renews for as long as the process lives that took the lock.
_hf_loop() {
	set +e # a request without an answer is repeated
	trap '' INT HUP QUIT
	trap 'kill "$_hf_sleeper" 2>/dev/null; exit 0' TERM
	_hf_sleeper='' _hf_granted=$_hf_ms _hf_token=$_hf_tok _hf_until=$_hf_end _hf_doubt='' _hf_resumes=''
	_hf_limit6=$((_hf_ttl / 6 < 50 ? 50 : _hf_ttl / 6 > 5000 ? 5000 : _hf_ttl / 6))
	while _hf_now && [ -d "$_hf_dir" ]; do
		while IFS=': 	' read -r _hf_key _hf_value; do
			[ "$_hf_key" != PPid ] || [ "$_hf_value" = "$_hf_pid" ] || exec rm -rf "$_hf_dir" # the script is dead
		done </proc/self/status
		_hf_step
	done 2>/dev/null
}

_hf_step() {
	_hf_last=$_hf_until # a command is stopped before its lock ends
	[ ! -e "$_hf_dir/cmd" ] || _hf_last=$((_hf_until - (_hf_ttl / 20 < 1000 ? _hf_ttl / 20 : 1000)))
	if [ $((_hf_ms + 10)) -ge "$_hf_last" ]; then
		_hf_lose expired
	elif [ -z "$_hf_doubt" ] && [ "$_hf_ms" -ge $((_hf_until - _hf_ttl / 4)) ]; then
		_hf_doubt=1 # rule 17
		: >"$_hf_dir/doubt"
		[ ! -e "$_hf_dir/cmd" ] || { : >"$_hf_dir/stopped" && kill -TERM "$(cat "$_hf_dir/cmd")"; }
	elif [ "$_hf_ms" -ge "$_hf_due" ]; then
		_hf_renew
		[ -z "$_hf_moved" ] || : >"$_hf_dir/moved"
	else
		_hf_at2=$((_hf_doubt ? _hf_last : _hf_until - _hf_ttl / 4))
		_hf_sleep $((_hf_due < _hf_at2 ? _hf_due - _hf_ms : _hf_at2 - _hf_ms))
	fi
}

_hf_renew() {
	_hf_got=${_hf_resumes-}
	[ -n "$_hf_got" ] || { _hf_ask /v1/renew "$_hf_limit6" "id=$_hf_id"; _hf_got=$?$_hf_status$_hf_state$_hf_code; }
	case $_hf_got in
	0404unknown_hold | 0200waiting) # rule 18
		_hf_rest=$((_hf_granted + ${HOLDFAST_MAX_HOLD:-0} - _hf_ms))
		_hf_take "$_hf_limit6" wait_ms=0 "resume=$_hf_token" \
			${HOLDFAST_MAX_HOLD:+"max_hold_ms=$((_hf_rest > 1 ? _hf_rest : 1))"}
		_hf_got=$?$_hf_status$_hf_state$_hf_code _hf_resumes=''
		[ "$_hf_got" = 0200held ] || _hf_resumes=0404unknown_hold
		;;
	esac
	case $_hf_got in
	0200held)
		if [ "$_hf_tok" != "$_hf_token" ]; then
			_hf_lose gone
		elif [ $((_hf_ms + 10)) -lt "$_hf_until" ] && _hf_claim && [ "$_hf_end" -gt "$_hf_until" ]; then # rules 4 to 6
			_hf_until=$_hf_end _hf_doubt=''
			echo "$_hf_until" >"$_hf_dir/new" && mv "$_hf_dir/new" "$_hf_dir/until"
			_hf_renewal
		else
			_hf_pause
		fi
		;;
	0410*) _hf_lose "${_hf_reason:-gone}" ;;
	*) _hf_pause ;;
	esac
}

_hf_lose() {
	echo "$1" >"$_hf_dir/lost" && _hf_say "$_hf_name: the lock is lost: $1"
	if [ -e "$_hf_dir/cmd" ]; then
		kill -KILL "$(cat "$_hf_dir/cmd")"
	else
		kill -TERM "$_hf_pid"
	fi
	_hf_release # rule 6
	exit 0
}

# holdfast_unlock NAME gives the lock up: 0 released, 74 it was lost before, 69 no server answered.
holdfast_unlock() { _hf_unlock "$@" || return; }

_hf_unlock() {
	if ! _hf_find "$1"; then
		[ "$_hf_asking" = "$1" ] && [ "$_hf_pid" = "$_hf_me" ] && _hf_asking='' && _hf_release # rule 10
		return 64
	fi
	_hf_name=$1 _hf_moved=''
	IFS=' ' read -r _hf_depth _hf_ttl _hf_id _hf_first <"$_hf_dir/hold"
	if [ "$_hf_depth" -gt 1 ]; then
		echo $((_hf_depth - 1)) "$_hf_ttl" "$_hf_id" "$_hf_first" >"$_hf_dir/hold"
		return
	fi
	read -r _hf_loop <"$_hf_dir/loop" && kill "$_hf_loop" 2>/dev/null
	[ ! -e "$_hf_dir/moved" ] || _hf_moved=true
	if holdfast_check "$1"; then
		_hf_release
		_hf_was=$?
	else
		[ -e "$_hf_dir/lost" ] || _hf_release
		_hf_was=74
	fi
	rm -rf "$_hf_dir"
	_hf_holds=${_hf_holds%%"$_hf_dir$_hf_nl"*}${_hf_holds#*"$_hf_dir$_hf_nl"}
	return $_hf_was
}

# holdfast_run NAME COMMAND... runs a command under the lock, and returns its status.
holdfast_run() (
	HOLDFAST_NAME=$1
	trap 'holdfast_unlock "$HOLDFAST_NAME"; exit 143' INT TERM HUP
	shift && holdfast_lock "$HOLDFAST_NAME" || exit
	export HOLDFAST_NAME HOLDFAST_TOKEN
	exec 3<&0
	"$@" <&3 3<&- &
	cmd=$!
	trap 'kill -TERM $cmd 2>/dev/null' INT TERM HUP
	echo $cmd >"$_hf_dir/cmd"
	while wait $cmd; rc=$?; [ $rc -gt 128 ] && kill -0 $cmd 2>/dev/null; do :; done
	[ ! -e "$_hf_dir/lost" ] && [ ! -e "$_hf_dir/stopped" ] || rc=74
	holdfast_unlock "$HOLDFAST_NAME" || [ $? != 74 ] || rc=74
	exit $rc
)
