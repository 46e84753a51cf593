package redislock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// TestClassOfAnswer checks the class of servers' errors, in the words of 6.2
// and of 7.0 (case C9).
//
// Covers: F30.
func TestClassOfAnswer(t *testing.T) {
	for text, want := range map[string]driver.Class{
		"READONLY You can't write against a read only replica.":                                                          driver.Unavailable,
		"READONLY You can't write against a read only replica. script: 1f0, on @user_script:12.":                         driver.Unavailable,
		"ERR Error running script (call to f_1f0): @user_script:7: @user_script: 7: -READONLY You can't write against a": driver.Unavailable,
		"ERR Error running script (call to f_1f0): @user_script:7: @user_script: 7: -OOM command not allowed when used ": driver.Unavailable,
		"ERR Error running script (call to f_1f0): @user_script:7: -MISCONF Redis is configured to save RDB snapshots":   driver.Unavailable,
		"ERR Error running script (call to f_1f0): @user_script:7: @user_script: 7: -NOREPLICAS Not enough good replica": driver.Unavailable,
		"OOM command not allowed when used memory > 'maxmemory'. script: 1f0, on @user_script:3.":                        driver.Unavailable,
		"LOADING Redis is loading the dataset in memory":                                                                 driver.Unavailable,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                               driver.Unavailable,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.":               driver.Unavailable,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":                         driver.Unavailable,
		"NOREPLICAS Not enough good replicas to write.":                                                                  driver.Unavailable,
		"CLUSTERDOWN The cluster is down":                                                                     driver.Unavailable,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                             driver.Unavailable,
		"ERR max number of clients reached":                                                                   driver.Unavailable,
		"ERR max number of clients + cluster connections reached":                                             driver.Unavailable,
		"ERR Error running script (call to f_1f0): @user_script:1: Script killed by user with SCRIPT KILL...": driver.Unavailable,
		"NOSCRIPT No matching script. Please use EVAL.":                                                       driver.NotDone,
		"MOVED 866 127.0.0.1:7001":                                                                            driver.NotDone,
		"ASK 866 127.0.0.1:7001":                                                                              driver.Unavailable,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                   driver.Refused,
		"ERR Error running script (call to f_1f0): @user_script:3: WRONGTYPE Operation against a key holding the wrong kind of value": driver.Refused,
		"NOAUTH Authentication required.":                                                                                              driver.Refused,
		"WRONGPASS invalid username-password pair or user is disabled.":                                                                driver.Refused,
		"NOPERM this user has no permissions to run the 'evalsha' command":                                                             driver.Refused,
		"ERR Error running script (call to f_1f0): @user_script:3: The user executing the script can't run this command or subcommand": driver.Refused,
		"NOPERM The user executing the script can't access at least one of the keys mentioned in the command arguments":                driver.Refused,
		"DENIED Redis is running in protected mode because protected mode is enabled":                                                  driver.Refused,
		"ERR unknown command 'EVALSHA', with args beginning with: ":                                                                    driver.Refused,
		"ERR DB index is out of range":                                                                                                 driver.Refused,
		"ERR user_script:60: HOLDFAST-LAYOUT script: 1f0, on @user_sc":                                                                 driver.Refused,
		"ERR something new": driver.Unknown,
		"":                  driver.Unknown,
	} {
		if got := wire.ClassOfAnswer(text); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

// TestF37_ForeignValues checks that a value of another type, at the key of a
// queue or of a helper, is refused and left as it is.
func TestF37_ForeignValues(t *testing.T) {
	s := servers.SharedRedis(t)
	m := enter(t, s, "")
	for name, set := range map[string][]string{
		"string":        {"SET", "", "x"},
		"list":          {"RPUSH", "", "x"},
		"session":       {"HSET", "", "user", "7", "lang", "de", "seen", "1"},
		"counter":       {"HSET", "", "visits", "3"},
		"pair":          {"HSET", "", "a", "1", "b", "2"},
		"not a number":  {"HSET", "", "6c0ad3ae-2b9d-4f3e-9d5c-8f6f1c0f7a11:42", "x"},
		"newer record":  {"HSET", "", "a:1", "1", "\x01a:1", "v2 something"},
		"read/write":    {"HSET", "", "mode", "read", "6c0ad3ae-2b9d-4f3e-9d5c-8f6f1c0f7a11:42", "1"},
		"part of ours":  {"HSET", "", "\x01l", "5", "a:1", "1", "b:1", "1"},
		"record lonely": {"HSET", "", "\x01a:1", "7\nc\nm"},
	} {
		t.Run(name, func(t *testing.T) {
			k := m.ticket("foreign/" + m.uuid + "/" + name)
			keys := keysOf(k.Name)
			set[1] = keys[wire.KeyHolders]
			s.Do(t, set...)
			before := s.Do(t, "DUMP", keys[wire.KeyHolders])
			for what, call := range map[string]func() error{
				"Join":    func() error { _, err := m.Join(m.ctx(), k, true); return err },
				"TryJoin": func() error { _, err := m.Join(m.ctx(), k, false); return err },
				"Renew":   func() error { return first(m.Renew(m.ctx(), []driver.Ref{ref(k)})) },
				"Break":   func() error { return m.Break(m.ctx(), k.Name, k.ID) },
				"Inspect": func() error { _, err := m.Inspect(m.ctx(), k.Name); return err },
			} {
				if err := call(); driver.ClassOf(err) != driver.Refused || err == nil || errors.Is(err, driver.ErrNoTicket) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if after := s.Do(t, "DUMP", keys[wire.KeyHolders]); after != before {
				t.Error("the value was changed")
			}
			if n := s.Do(t, "EXISTS", keys[wire.KeyWaiters], keys[wire.KeyDue], keys[wire.KeyTickets]); n != int64(0) {
				t.Errorf("%v helpers were written", n)
			}
		})
	}
	for i := wire.KeyWaiters; i < wire.OwnKeys; i++ {
		t.Run(strings.TrimSuffix(wire.HelperNames[i], ":"), func(t *testing.T) {
			for _, limit := range []int64{1, 5} {
				name := fmt.Sprint("foreign/", m.uuid, "/helper/", i, "/", limit)
				key := keysOf(name)[i]
				s.Do(t, "GEOADD", key, "1", "2", "x") // a sorted set
				if i == wire.KeyDue {
					s.Do(t, "DEL", key)
					s.Do(t, "SET", key, "x")
				}
				before := s.Do(t, "DUMP", key)
				var err error
				for range 2 { // the first renewal may not need this key
					k := m.ticket(name)
					k.Limit, k.Units = limit, limit
					if _, err = m.Join(m.ctx(), k, true); err == nil {
						err = first(m.Renew(m.ctx(), []driver.Ref{ref(k)})) // a wait may need it only now
					}
					if err != nil {
						break
					}
				}
				if driver.ClassOf(err) != driver.Refused || err == nil {
					t.Errorf("limit %d: Join: %v", limit, err)
				}
				if after := s.Do(t, "DUMP", key); after != before {
					t.Error("the value was changed")
				}
			}
		})
	}
}

func first(ps []driver.Status, err error) error {
	if err == nil {
		err = ps[0].Err
	}
	return err
}

// TestF67_TokensEnd checks the end of tokens, where numbers are no longer
// exact.
func TestF67_TokensEnd(t *testing.T) {
	s := servers.SharedRedis(t)
	tokensEnd(t, enter(t, s, ""), func(string) *servers.RedisServer { return s })
}

// tokensEnd sets the last token of queues, each at the server that has the
// queue, to the end of tokens and beyond: nothing is granted, and nothing is
// changed.
func tokensEnd(t *testing.T, m *member, at func(name string) *servers.RedisServer) {
	t.Helper()
	for _, last := range []string{"4503599627370496", "9007199254740991", "9223372036854775807", "18446744073709551615"} {
		name := "end/" + m.uuid + "/" + last
		s, key := at(name), keysOf(name)[wire.KeyHolders]
		ahead := wire.AheadName
		if m.Traits().Lane != nil {
			ahead = wire.ChannelOf(wire.AheadName+":", wire.Slot(key))
		}
		s.Do(t, "ZADD", ahead, last, key)
		before, _ := s.Do(t, "ZSCORE", ahead, key).(string)
		for _, limit := range []int64{1, 2} {
			k := m.ticket(name)
			k.Limit = limit
			if _, err := m.Join(m.ctx(), k, true); !errors.Is(err, wire.ErrSpent) || driver.ClassOf(err) != driver.Refused {
				t.Errorf("after %s: %v", last, err)
			}
		}
		if got, _ := s.Do(t, "ZSCORE", ahead, key).(string); got != before {
			t.Errorf("the token went from %s to %v", before, got)
		}
		s.Do(t, "ZREM", ahead, key)
	}
	k := m.ticket("end/floor/" + m.uuid)
	k.MinToken = 1 << 60
	if _, err := m.Join(m.ctx(), k, true); !errors.Is(err, wire.ErrSpent) {
		t.Errorf("with a floor of 2^60: %v", err)
	}
	k = m.ticket("end/limit/" + m.uuid)
	k.Limit = 1 << 60
	if _, err := m.Join(m.ctx(), k, true); driver.ClassOf(err) != driver.Refused || err == nil {
		t.Errorf("with a limit of 2^60: %v", err)
	}
}

// TestF39_TokenAheadLasts checks that a token which a minimum token took ahead
// of the clock is kept for its queue until the mark has passed it, and no
// longer than until the next such grant.
func TestF39_TokenAheadLasts(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	m := enter(t, s, "")
	floored := func(name string, ahead time.Duration) driver.Status {
		k := m.ticket(name)
		k.MinToken = driver.NextToken(0, 0, serverTime(t, s)) + uint64(ahead/driver.TokenTick)
		p := m.take(k, driver.Held)
		if p.Token < k.MinToken {
			t.Errorf("token %d with a floor of %d", p.Token, k.MinToken)
		}
		m.leaves(k, driver.Held)
		return p
	}
	last := floored("far", time.Hour).Token
	for _, limit := range []int64{1, 4} {
		k := m.ticket("far")
		k.Limit = limit
		if p := m.take(k, driver.Held); p.Token != last+1 {
			t.Errorf("token %d after %d", p.Token, last)
		}
		last++
		m.leaves(k, driver.Held)
	}
	const near = 10
	for i := range near {
		floored(fmt.Sprint("near", i), 20*time.Millisecond)
	}
	far := keysOf("far")[wire.KeyHolders]
	eventually(t, "only what is ahead is kept", func() bool {
		floored("other", time.Minute)
		return slices.Equal(texts(s.Do(t, "ZRANGE", wire.AheadName, "0", "-1")), []string{keysOf("other")[wire.KeyHolders], far})
	})
	if ttl := s.Do(t, "PTTL", wire.AheadName); ttl != int64(-1) {
		t.Errorf("what is ahead ends in %v ms", ttl)
	}
}
