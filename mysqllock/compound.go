package mysqllock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// MariaDB runs several statements as one, a compound statement, which can be prepared
// and needs no right and no routine in the database. A contended request is such a
// statement: it begins its transaction, decides, and commits or rolls back, while the
// client is one round trip away, or gone. It decides the likely case, and answers
// nothing in every other; then the statements of the old way decide.
//
// A compound is used on the driver's own connections, which prepare it and have the
// session settings that it needs (see textCompounds). MySQL has no such statements. In
// a Galera cluster, statements are sent one by one, see sendMode.galera.
//
// Each part reads the time when it is needed, because it may have waited for the
// queue's row: SYSDATE is the time of its evaluation, and that of UTC_TIMESTAMP may be
// the beginning of the compound.

// compoundStart begins each compound statement.
const compoundStart = "BEGIN NOT ATOMIC "

// isCompound reports whether a text is a compound statement.
func isCompound(text string) bool { return strings.HasPrefix(text, compoundStart) }

// textCompounds are the settings of a session on which compounds depend. SYSDATE is in
// the session's time zone; a compound decides nothing in another one. A compound that
// the server has interrupted may have a transaction open, which must not outlive a
// client that was stopped.
var textCompounds = fmt.Sprintf("SET SESSION time_zone = '%s', idle_transaction_timeout = %d", utc, idleMax)

const utc = "+00:00"

// compoundTexts returns the texts of Dialect.JoinCompound and Dialect.LeaveCompound, for
// a server's clock.
func compoundTexts(clock, post string) (join, leave string) {
	clock = strings.ReplaceAll(clock, "UTC_TIMESTAMP(6)", "SYSDATE(6)")
	return compound(joinCompound, clock, post), compound(leaveCompound, clock, post)
}

// takesQueue is the statement of an uncontended join, for arguments in variables: it
// makes the row of a queue that has none.
var takesQueue = sync.OnceValue(func() string {
	text := strings.TrimSpace(join())
	for _, v := range []string{"v_k", "v_name", "v_lim", "v_units", "v_id", "''", "v_units", "v_keep", "v_keep", "v_wake", "v_meta", "v_floor"} {
		text = strings.Replace(text, "?", v, 1)
	}
	return text
})

func compound(text, clock, post string) string {
	return compoundStart + strings.NewReplacer(
		"{undo}", "DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END",
		"{begin}", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION",
		"{take}", takesQueue(),
		"{clock}", clock,
		"{ticks}", fmt.Sprintf("greatest((r_now - %d) DIV 25, 1)", driver.Epoch.UnixMicro()),
		"{post}", post,
		"{granted}", fmt.Sprint(int64(driver.Held)),
		"{until}", fmt.Sprint(messageTTL.Microseconds()),
	).Replace(strings.TrimSpace(text))
}

// joinCompound is described at sqlqueue.Dialect.JoinCompound. Variables with v_ are the
// arguments, those with r_ are of the queue.
//
// A ticket that is to wait needs no look for a place that it has already: the insertion
// fails then.
//
// The last ticket of a queue is usually the one with the last number, and the first
// waiter the one after the last holder. A ticket with such a place is the last, or the
// first, whatever else there is, and is found by its key: a search in the order of the
// places takes three times as long.
const joinCompound = `
	DECLARE v_k binary(32) DEFAULT ?;
	DECLARE v_name varbinary(4096) DEFAULT ?;
	DECLARE v_lim bigint DEFAULT ?;
	DECLARE v_units bigint DEFAULT ?;
	DECLARE v_id varbinary(128) DEFAULT ?;
	DECLARE v_keep bigint DEFAULT ?;
	DECLARE v_wake varbinary(64) DEFAULT ?;
	DECLARE v_meta varbinary(4096) DEFAULT ?;
	DECLARE v_floor bigint DEFAULT ?;
	DECLARE v_waits bigint DEFAULT ?;
	DECLARE r_found, r_free, r_steady, r_one, r_held, r_waiting, r_seq, r_turn, r_token, r_due, r_graves, r_keep, r_until, r_before, r_now bigint DEFAULT 0;
	DECLARE r_owner varbinary(256) DEFAULT '';
	DECLARE r_meta varbinary(4096);
	{undo};
	{begin};
	SELECT 1, held + waiting = 0 AND token < 9223372036854775807,
		h_id <> '' AND h_id <> v_id AND lim = v_lim
			AND token BETWEEN 1 AND 9223372036854775806 AND h_token BETWEEN 1 AND token
			AND used BETWEEN 1 AND lim AND held BETWEEN 1 AND used AND h_place BETWEEN 1 AND turn AND turn <= seq
			AND (waiting > 0 AND used = lim OR waiting = 0 AND held = 1 AND h_owner = '' AND v_units > lim - used),
		h_owner = '', held, waiting, seq, turn, token, due, graves, h_keep, h_until, h_meta
	INTO r_found, r_free, r_steady, r_one, r_held, r_waiting, r_seq, r_turn, r_token, r_due, r_graves, r_keep, r_until, r_meta
	FROM {line} WHERE k = v_k AND name = v_name AND @@time_zone = '+00:00' FOR UPDATE;
	SET r_now = {clock};
	IF r_found = 0 THEN
		DO LAST_INSERT_ID(0);
		{take};
		IF LAST_INSERT_ID() > 0 THEN
			COMMIT;
			SELECT LAST_INSERT_ID(), 0, 0, '';
		END IF;
	ELSEIF r_graves > 0 THEN
		SELECT r_graves <= r_now OR EXISTS(SELECT 1 FROM {grave} WHERE line = v_k AND id = v_id AND until > r_now) INTO r_graves;
	END IF;
	IF r_found = 0 OR r_graves > 0 THEN
		ROLLBACK;
	ELSEIF r_free THEN
		SET r_token = greatest(r_token + 1, {ticks}, v_floor);
		UPDATE {line} SET lim = v_lim, used = v_units, held = 1, seq = 1, turn = 1, token = r_token, due = 9223372036854775807,
			h_id = v_id, h_owner = '', h_units = v_units, h_place = 1, h_token = r_token, h_keep = v_keep, h_until = r_now + v_keep,
			h_wake = v_wake, h_meta = v_meta
		WHERE k = v_k;
		COMMIT;
		SELECT r_token, 0, 0, '';
	ELSEIF r_steady AND r_until > r_now AND r_until - r_keep <= r_now AND r_due > r_now THEN
		SET r_before = r_until;
		IF r_waiting > 0 THEN
			SET r_before = 0;
			SELECT until, owner INTO r_before, r_owner FROM {ticket} WHERE line = v_k AND place = r_seq AND seq = r_seq;
			IF r_before = 0 THEN
				SELECT until, owner INTO r_before, r_owner FROM {ticket} WHERE line = v_k AND place > r_turn ORDER BY place DESC, seq DESC LIMIT 1;
			END IF;
		END IF;
		IF r_before > r_now AND r_owner = '' THEN
			IF v_waits THEN
				INSERT INTO {ticket} (line, place, seq, id, owner, units, token, floor, keep, until, wake, meta)
				VALUES (v_k, r_seq + 1, r_seq + 1, v_id, '', v_units, 0, v_floor, v_keep, r_now + v_keep, v_wake, v_meta);
				UPDATE {line} SET seq = r_seq + 1, waiting = r_waiting + 1 WHERE k = v_k;
				COMMIT;
				SELECT 0, r_held + r_waiting, r_before - r_now, r_meta;
			ELSEIF r_one AND NOT EXISTS(SELECT 1 FROM {ticket} WHERE line = v_k AND id = v_id) THEN
				SELECT 0, r_held + r_waiting, r_until - r_now, r_meta;
			END IF;
		END IF;
	END IF;
	ROLLBACK;
	END`

// leaveCompound is described at sqlqueue.Dialect.LeaveCompound. Variables with n_ are
// of the ticket that is granted. The message about its own grant leaves with the ticket,
// so that it needs no commit of its own.
const leaveCompound = `
	DECLARE v_k binary(32) DEFAULT ?;
	DECLARE v_id varbinary(128) DEFAULT ?;
	DECLARE v_self varbinary(64) DEFAULT ?;
	DECLARE r_was, r_waiting, r_turn, r_token, r_until, r_now bigint DEFAULT 0;
	DECLARE n_place, n_seq, n_units, n_floor, n_keep, n_until bigint DEFAULT 0;
	DECLARE n_id varbinary(128) DEFAULT '';
	DECLARE n_owner varbinary(256) DEFAULT '';
	DECLARE n_wake varbinary(64) DEFAULT '';
	DECLARE n_meta varbinary(4096) DEFAULT '';
	{undo};
	{begin};
	SELECT h_token, waiting, turn, token, h_until INTO r_was, r_waiting, r_turn, r_token, r_until FROM {line}
	WHERE k = v_k AND h_id = v_id AND h_owner = '' AND lim = 1 AND held = 1 AND token < 9223372036854775807 AND @@time_zone = '+00:00' FOR UPDATE;
	SET r_now = {clock};
	IF r_until > r_now THEN
		IF r_waiting = 0 THEN
			UPDATE {line} SET used = 0, held = 0, h_id = '', h_wake = '', h_meta = '' WHERE k = v_k;
			DELETE FROM {post} WHERE wake = v_self AND id = v_id;
			COMMIT;
			SELECT r_was, '', '', 0, 0;
		ELSE
			SELECT place, seq, id, owner, units, floor, keep, until, wake, meta
			INTO n_place, n_seq, n_id, n_owner, n_units, n_floor, n_keep, n_until, n_wake, n_meta
			FROM {ticket} WHERE line = v_k AND place = r_turn + 1 AND seq = r_turn + 1;
			IF n_place = 0 THEN
				SELECT place, seq, id, owner, units, floor, keep, until, wake, meta
				INTO n_place, n_seq, n_id, n_owner, n_units, n_floor, n_keep, n_until, n_wake, n_meta
				FROM {ticket} WHERE line = v_k AND place > r_turn ORDER BY place, seq LIMIT 1;
			END IF;
			IF n_until > r_now AND n_owner = '' THEN
				SET r_token = greatest(r_token + 1, {ticks}, n_floor);
				DELETE FROM {ticket} WHERE line = v_k AND place = n_place AND seq = n_seq;
				UPDATE {line} SET used = n_units, waiting = r_waiting - 1, turn = n_place, due = 9223372036854775807,
					token = r_token, h_token = r_token, h_id = n_id, h_units = n_units, h_place = n_place,
					h_keep = n_keep, h_until = n_until, h_wake = n_wake, h_meta = n_meta
				WHERE k = v_k;
				DELETE FROM {post} WHERE wake = v_self AND id = v_id;
				IF n_wake IN ('', v_self) OR LEFT(n_wake, 1) = '-' THEN
					COMMIT;
					SELECT r_was, n_id, n_wake, r_token, r_waiting - 1;
				ELSE
					INSERT INTO {post} (wake, id, state, token, until) VALUES (n_wake, n_id, {granted}, r_token, r_now + {until})
					ON DUPLICATE KEY UPDATE state = VALUES(state), token = VALUES(token), until = VALUES(until);
					COMMIT;
					SELECT r_was, n_id, n_wake, r_token, r_waiting - 1;
					BEGIN
						DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
						KILL QUERY IS_USED_LOCK(n_wake);
					END;
				END IF;
			END IF;
		END IF;
	END IF;
	ROLLBACK;
	END`

// errNotPrepared is the error of a compound statement on a connection that cannot
// prepare it. Nothing was sent.
var errNotPrepared = errors.New("the connection prepares no such statement")

// RunsCompounds implements [sqlqueue.CompoundDB].
func (d *database) RunsCompounds() bool {
	m := d.mode.Load()
	return m != nil && m.compounds
}

// Compound implements [sqlqueue.CompoundDB].
func (d *database) Compound(ctx context.Context, s *sqlqueue.Stmt) error {
	ctx, cancel := sqlqueue.Within(ctx, requestTime)
	defer cancel()
	return d.inConn(ctx, func(c *conn) error {
		it := itemOf(s)
		it.rows = true
		err := c.run(ctx, true, it)
		if err == nil || errors.Is(err, errNotPrepared) {
			return nil
		}
		c.rollback(ctx) // an interruption skips the handler that does it
		if undoneByServer(ctx, err) || code(err) == rowExists && ctx.Err() == nil {
			return nil
		}
		return err
	})
}

// hasCompounds reports whether a server of this version has compound statements that can
// be prepared, and is one of those on which they were tested.
func hasCompounds(version string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(strings.TrimPrefix(version, "5.5.5-"), "%d.%d", &major, &minor); err != nil || !isMariaDB(version) {
		return false
	}
	return major > 10 || major == 10 && minor >= 6
}
