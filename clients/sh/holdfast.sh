# Locks of a Holdfast lock server, for POSIX sh with curl, on Linux. README.md shows the use, the
# settings and the exit statuses. Comments number the rules of ../README.md.

_hf_uptime=/proc/uptime _hf_at=0 _hf_group='' _hf_count=0 _hf_holds='' _hf_pid='' _hf_asking=''
_hf_cr=$(printf '\r') _hf_nl='
'

_hf_say() { printf 'holdfast: %s\n' "$*" >&2; }
_hf_seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }

# _hf_now sets _hf_ms to elapsed milliseconds, rounded down to 10; suspends count (rule 8).
_hf_now() {
	IFS=' ' read -r _hf_up _ <"$_hf_uptime" || { _hf_say "$_hf_uptime cannot be read"; return 64; }
	_hf_ms=$((${_hf_up%.*} * 1000 + (1${_hf_up#*.} - 100) * 10))
}

_hf_sleep() { # MILLISECONDS; a signal ends it
	sleep "$(_hf_seconds "$1")" >/dev/null 2>&1 &
	_hf_sleeper=$!
	wait "$_hf_sleeper"
}

_hf_pause() { # sleeps for a twentieth of the TTL, with jitter
	_hf_sleep $((_hf_ttl / 40 + $(od -An -N2 -tu2 /dev/urandom) * _hf_ttl / 20 / 65536))
}

# _hf_mine says whether the holds are this process's: a subshell has none (rule 2).
_hf_mine() { IFS=' ' read -r _hf_me _ </proc/self/stat && [ "$_hf_pid" = "$_hf_me" ]; }

_hf_fresh() { # sets _hf_id to an id that was never used (rule 1)
	if ! _hf_mine; then
		_hf_client=$(od -An -N20 -tx1 /dev/urandom | tr -d ' \n')
		_hf_pid=$_hf_me _hf_count=0 _hf_holds=''
		[ "${#_hf_client}" = 40 ] || return 64
	fi
	_hf_count=$((_hf_count + 1))
	_hf_id=$_hf_client.$_hf_count _hf_moved='' _hf_first=''
}

_hf_choose() { # sets _hf_url to the server whose turn it is
	_hf_ifs=${IFS-" 	$_hf_nl"} IFS=" ,	$_hf_nl"
	# shellcheck disable=SC2086 # words are wanted
	set -- ${HOLDFAST_SERVERS:-http://127.0.0.1:7420}
	IFS=$_hf_ifs _hf_servers=$#
	[ $# = 0 ] || shift $((_hf_at % $#))
	_hf_url=${1%/} _hf_noproxy=''
	case $_hf_url in
	http://127.0.0.1:* | http://localhost:* | "http://[::1]:"*) _hf_noproxy='*' ;;
	http://*) # rule 14
		[ -z "${HOLDFAST_AUTH_FILE-}" ] || { _hf_say "a token needs https://"; return 64; } ;;
	https://*) ;;
	*) _hf_say "HOLDFAST_SERVERS: want http://HOST:PORT or https://HOST:PORT"; return 64 ;;
	esac
}

# _hf_ask PATH LIMIT FIELD... sends a request, and reads the fields of its answer. It returns
# 1 if it is the next server's turn, and 64 if the program is wrong.
_hf_ask() {
	_hf_signed='' _hf_status='' _hf_server='' _hf_of='' _hf_draining='' _hf_state='' _hf_code=''
	_hf_token='' _hf_left_ms='' _hf_reason='' _hf_result='' _hf_detail='' _hf_next=''
	_hf_choose || return
	_hf_path=$1 _hf_limit=$(_hf_seconds "$2")
	shift 2
	for _hf_arg; do
		shift
		set -- "$@" --data-urlencode "$_hf_arg"
	done
	[ -z "${HOLDFAST_AUTH_FILE-}" ] || set -- -H "@$HOLDFAST_AUTH_FILE" "$@"
	[ -z "${HOLDFAST_CACERT-}" ] || set -- --cacert "$HOLDFAST_CACERT" "$@"
	[ -z "$_hf_noproxy" ] || set -- --noproxy "$_hf_noproxy" "$@"
	_hf_now || return
	_hf_c0=$_hf_ms
	set -- --max-time "$_hf_limit" -H 'Accept: text/plain' "$@" "$_hf_url$_hf_path"
	_hf_answer=$(curl -q -sS -i "$@" 2>/dev/null) || _hf_answer=''
	_hf_now
	while IFS= read -r _hf_line; do
		_hf_line=${_hf_line%"$_hf_cr"}
		case $_hf_line in
		HTTP/*) _hf_status=${_hf_line#* } && _hf_status=${_hf_status%% *} ;;
		[Hh]oldfast:*1) _hf_signed=1 ;;
		group=*) _hf_of=${_hf_line#*=} ;;
		status=* | server=* | draining=* | state=* | token=* | left_ms=* | code=* | reason=* | \
			result=* | detail=*) eval "_hf_${_hf_line%%=*}=\${_hf_line#*=}" ;;
		esac
	done <<-END
		$_hf_answer
	END
	[ -z "$_hf_of" ] || [ "$_hf_of" = "${_hf_group:=$_hf_of}" ] || # rule 12
		{ _hf_say "$_hf_url has another store than the server before"; return 64; }
	case $_hf_signed$_hf_status in 1[1-4]??) ;; *) _hf_next=1 ;; esac # rule 11
	[ -n "$_hf_signed" ] && [ "$_hf_server" = "${_hf_first:=$_hf_server}" ] || _hf_moved=true # rule 9
	[ "$_hf_result" != unknown ] || _hf_draining=true # its store did not answer
	[ -z "$_hf_next$_hf_draining" ] || _hf_at=$((_hf_at + 1))
	[ -z "$_hf_next" ]
}

_hf_take() { # LIMIT FIELD... asks for the lock
	set -- "$@" "id=$_hf_id" "name=$_hf_name" "ttl_ms=$_hf_ttl" "kind=${HOLDFAST_KIND:-mutex}"
	_hf_ask /v1/acquire "$@"
}

# _hf_claim sets _hf_end by the answer (rule 3), and _hf_due (rule 7). The clock is rounded down.
_hf_claim() {
	case $_hf_left_ms in '' | *[!0-9]*) return 1 ;; esac
	_hf_margin=$(((_hf_left_ms + 99) / 100))
	_hf_end=$((_hf_c0 + _hf_left_ms - _hf_margin - (_hf_margin < 20 ? _hf_margin : 20)))
	_hf_due=$(((_hf_end - _hf_ttl > _hf_c0 ? _hf_end - _hf_ttl : _hf_c0) + _hf_ttl / 3))
	[ $((_hf_ms + 10)) -lt $_hf_end ] # rule 5
}

_hf_release() { # releases the id _hf_id of _hf_name, in TTL/3, 5 s at most (rule 16)
	_hf_bound=$((_hf_ttl / 3 < 5000 ? _hf_ttl / 3 : 5000))
	_hf_now || return
	_hf_stop=$((_hf_ms + _hf_bound))
	while [ "$_hf_ms" -lt $_hf_stop ]; do
		_hf_ask /v1/release $((_hf_bound / 2 + 1)) "id=$_hf_id" "name=$_hf_name" \
			"moved=${_hf_moved:-false}"
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

_hf_find() { # NAME: sets _hf_dir to the folder of a hold of this process
	_hf_dir='' _hf_rest=$_hf_holds
	_hf_mine || return # rule 2
	while [ -n "$_hf_rest" ]; do
		_hf_dir=${_hf_rest%%"$_hf_nl"*} _hf_rest=${_hf_rest#*"$_hf_nl"}
		{ IFS= read -r _hf_known && IFS=' ' read -r _hf_depth _hf_kept; } <"$_hf_dir/hold"
		[ "$_hf_known" != "$1" ] || return 0
	done
	return 1
}

# holdfast_check NAME: 0 while the lock is held, else 74. It compares clocks and asks nobody.
holdfast_check() {
	_hf_find "$1" && [ ! -e "$_hf_dir/lost" ] && read -r _hf_end <"$_hf_dir/until" && _hf_now &&
		[ $((_hf_ms + 10)) -lt "$_hf_end" ] || return 74 # rule 6
}

# holdfast_lock NAME waits for the lock, and sets HOLDFAST_TOKEN. The list keeps `set -e` from
# ending the script at the first request without an answer.
holdfast_lock() { _hf_lock "$@" || { set -- $?; _hf_asking=''; return "$1"; }; }
_hf_lock() {
	case $1 in *"$_hf_nl"*) _hf_say "a name with a new line cannot be locked"; return 64 ;; esac
	if _hf_find "$1"; then # rule 13
		holdfast_check "$1" || return
		printf '%s\n' "$1" "$((_hf_depth + 1)) $_hf_kept" >"$_hf_dir/hold"
		return
	fi
	_hf_fresh && _hf_now || return
	_hf_name=$1 _hf_ttl=${HOLDFAST_TTL:-30000} _hf_asking=$1 _hf_missed=0
	_hf_heard=$_hf_ms _hf_over=$((_hf_ms + ${HOLDFAST_WAIT:-4000000000000}))
	while :; do
		_hf_wait=$((_hf_ttl / 3 < 1000 ? 1000 : _hf_ttl / 3 < 10000 ? _hf_ttl / 3 : 10000))
		_hf_left=$((_hf_over > _hf_ms ? _hf_over - _hf_ms : 0))
		_hf_wait=$((_hf_left < _hf_wait ? _hf_left : _hf_wait)) _hf_way=wait_ms=$_hf_wait
		[ "${HOLDFAST_WAIT-}" != 0 ] || _hf_way=try=true
		_hf_take $((_hf_wait + 5000)) "$_hf_way" "pid=$_hf_me" "host=$(uname -n)" \
			"note=${HOLDFAST_NOTE-}" ${HOLDFAST_MAX_HOLD:+"max_hold_ms=$HOLDFAST_MAX_HOLD"}
		_hf_got=$?$_hf_status$_hf_code
		case $_hf_got in 0*) _hf_heard=$_hf_ms _hf_missed=0 ;; *) _hf_missed=$((_hf_missed + 1)) ;; esac
		case $_hf_got in
		0200)
			if _hf_claim; then _hf_begin; return; fi
			_hf_release # rule 5
			_hf_fresh
			;;
		0202) ;;
		0410* | 0409id_in_use) _hf_fresh ;;
		0409held) [ -z "$_hf_moved" ] || _hf_release; return 75 ;;
		0409*) _hf_say "$_hf_name: $_hf_detail"; return 78 ;;
		0425* | 0429* | 1*) _hf_pause ;;
		64*) _hf_release; return 64 ;;
		*) _hf_say "$_hf_name: ${_hf_detail:-$_hf_code}"; return 64 ;;
		esac
		_hf_now || return
		if { [ "$_hf_ms" -ge "$_hf_over" ] || [ $((_hf_ms - _hf_heard)) -ge "$_hf_ttl" ]; } &&
			[ $((_hf_missed % _hf_servers)) = 0 ]; then
			_hf_release # rule 10
			return $((_hf_missed > 0 ? 69 : 75))
		fi
	done
}

_hf_begin() { # notes a hold in a folder of its own, and starts the loop that renews it
	_hf_dir=$(mktemp -d 2>/dev/null) ||
		{ _hf_say "${TMPDIR:-/tmp} takes no files"; _hf_release; return 64; }
	HOLDFAST_TOKEN=$_hf_token _hf_asking='' _hf_holds=$_hf_holds$_hf_dir$_hf_nl
	echo "$_hf_end" >"$_hf_dir/until"
	[ -z "$_hf_moved" ] || : >"$_hf_dir/moved"
	_hf_loop </dev/null >/dev/null &
	printf '%s\n' "$_hf_name" "1 $! $_hf_ttl $_hf_id $_hf_first" >"$_hf_dir/hold"
}

_hf_loop() { # renews for as long as the process lives that took the lock
	set +e # a request without an answer is repeated
	trap '' INT HUP QUIT
	trap 'kill "$_hf_sleeper" 2>/dev/null; exit 0' TERM
	_hf_sleeper='' _hf_granted=$_hf_ms _hf_until=$_hf_end _hf_doubt='' _hf_resumes=''
	while _hf_now && [ -d "$_hf_dir" ]; do
		IFS= read -r _hf_stat </proc/self/stat
		case ${_hf_stat##*) } in ?" $_hf_pid "*) _hf_step ;; *) exec rm -rf "$_hf_dir" ;; esac
	done 2>/dev/null
}

_hf_step() {
	_hf_last=$_hf_until # a command is stopped before its lock ends
	[ ! -e "$_hf_dir/cmd" ] || _hf_last=$((_hf_until - (_hf_ttl / 20 < 1000 ? _hf_ttl / 20 : 1000)))
	_hf_turn=$((_hf_doubt ? _hf_last : _hf_until - _hf_ttl / 4))
	if [ $((_hf_ms + 10)) -ge "$_hf_last" ]; then
		_hf_lose expired
	elif [ -z "$_hf_doubt" ] && [ "$_hf_ms" -ge "$_hf_turn" ]; then
		_hf_doubt=1 # rule 17
		[ ! -e "$_hf_dir/cmd" ] || { : >"$_hf_dir/stopped" && kill -TERM "$(cat "$_hf_dir/cmd")"; }
	elif [ "$_hf_ms" -ge "$_hf_due" ]; then
		_hf_renew
		[ -z "$_hf_moved" ] || : >"$_hf_dir/moved"
	else
		_hf_sleep $(((_hf_due < _hf_turn ? _hf_due : _hf_turn) - _hf_ms))
	fi
}

_hf_renew() {
	_hf_most=$((_hf_ttl / 6 < 50 ? 50 : _hf_ttl / 6 > 5000 ? 5000 : _hf_ttl / 6))
	_hf_got=$_hf_resumes
	if [ -z "$_hf_got" ]; then
		_hf_ask /v1/renew "$_hf_most" "id=$_hf_id"
		_hf_got=$?$_hf_status$_hf_state$_hf_code
	fi
	case $_hf_got in
	0404unknown_hold | 0200waiting) # rule 18
		_hf_take "$_hf_most" wait_ms=0 "resume=$HOLDFAST_TOKEN" \
			${HOLDFAST_MAX_HOLD:+"max_hold_ms=$((_hf_granted + HOLDFAST_MAX_HOLD - _hf_ms))"}
		_hf_got=$?$_hf_status$_hf_state _hf_resumes=''
		[ "$_hf_got" = 0200held ] || _hf_resumes=0404unknown_hold
		;;
	esac
	case $_hf_got in
	0200held)
		[ "$_hf_token" = "$HOLDFAST_TOKEN" ] || _hf_lose gone
		if [ $((_hf_ms + 10)) -lt "$_hf_until" ] && _hf_claim && [ "$_hf_end" -gt "$_hf_until" ]; then
			_hf_until=$_hf_end _hf_doubt='' # rules 4 to 6
			echo "$_hf_until" >"$_hf_dir/new" && mv "$_hf_dir/new" "$_hf_dir/until"
		fi
		;;
	0410*) _hf_lose "${_hf_reason:-gone}" ;;
	*) _hf_pause ;;
	esac
}

_hf_lose() {
	echo "$1" >"$_hf_dir/lost" && _hf_say "$_hf_name: the lock is lost: $1"
	set -- -TERM "$_hf_pid"
	[ ! -e "$_hf_dir/cmd" ] || set -- -KILL "$(cat "$_hf_dir/cmd")"
	kill "$@"
	_hf_release # rule 6
	exit 0
}

# holdfast_unlock NAME gives the lock up: 0 released, 74 it was lost before, 69 no server answered.
holdfast_unlock() { _hf_unlock "$@" || return; }
_hf_unlock() {
	_hf_find "$1" || # rule 10
		{ [ "$_hf_asking" = "$1" ] && _hf_mine && _hf_asking='' && _hf_release; return 64; }
	_hf_name=$1 _hf_moved=''
	[ "$_hf_depth" = 1 ] || # rule 13
		{ printf '%s\n' "$1" "$((_hf_depth - 1)) $_hf_kept" >"$_hf_dir/hold"; return; }
	{ read -r _ && IFS=' ' read -r _ _hf_loop _hf_ttl _hf_id _hf_first; } <"$_hf_dir/hold"
	kill "$_hf_loop" 2>/dev/null
	[ ! -e "$_hf_dir/moved" ] || _hf_moved=true
	holdfast_check "$1"
	_hf_was=$?
	[ -e "$_hf_dir/lost" ] || _hf_release || _hf_was=$((_hf_was > 0 ? _hf_was : $?))
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
