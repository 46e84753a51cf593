package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// TestF66_MarkLayoutGolden checks the stored data of a mark, byte for byte, that
// it expires after 400 days, and that a value of another program in its place is
// refused and stays.
//
// Covers: F66 on redis.
func TestF66_MarkLayoutGolden(t *testing.T) {
	s := servers.SharedRedis(t)
	m := openOn(t, s, "")
	name := "marked/" + rand.Text()
	key := "holdfast_done:{" + wire.HoldersKey(DefaultPrefix, name) + "}"
	ctx := context.Background()
	if err := m.SetMark(ctx, name, driver.Mark{Token: 1<<60 + 1, Value: []byte("a\x00value")}); err != nil {
		t.Fatal(err)
	}
	same(t, "mark", hash(t, s, key), "token=01152921504606846977", "value=a\x00value")
	days := time.Duration(s.Do(t, "PTTL", key).(int64)) * time.Millisecond / (24 * time.Hour)
	if days != 399 && days != 400 {
		t.Errorf("the mark expires in %d days", days)
	}
	for _, value := range [][]string{
		{"SET", key, "text"}, {"HSET", key, "field", "1"}, {"HSET", key, "token", "12", "value", "v"}, {"HSET", key, "token", "01152921504606846977"},
	} {
		s.Do(t, "DEL", key)
		s.Do(t, value...)
		dump := s.Do(t, "DUMP", key)
		_, err := m.Mark(ctx, name)
		set := m.SetMark(ctx, name, driver.Mark{Token: 1 << 62})
		if driver.ClassOf(err) != driver.Refused || err == nil || driver.ClassOf(set) != driver.Refused || set == nil {
			t.Errorf("%q: Mark %v, SetMark %v", value, err, set)
		}
		if s.Do(t, "DUMP", key) != dump {
			t.Errorf("%q has changed", value)
		}
	}
	s.Do(t, "DEL", key)
}

// TestMarkAwaitsReplicas checks that a mark which too few replicas have confirmed
// is an error of unknown outcome.
func TestMarkAwaitsReplicas(t *testing.T) {
	s := servers.SharedRedis(t)
	m := openOn(t, s, "min_replicas=1")
	name := "unconfirmed/" + rand.Text()
	err := m.SetMark(context.Background(), name, driver.Mark{Token: 1})
	if err == nil || driver.ClassOf(err) != driver.Unknown {
		t.Errorf("SetMark without a replica: %v", err)
	}
	if err := m.SetMark(context.Background(), name, driver.Mark{}); driver.ClassOf(err) != driver.Refused || err == nil {
		t.Errorf("SetMark without a token: %v", err)
	}
	s.Do(t, "DEL", "holdfast_done:{"+wire.HoldersKey(DefaultPrefix, name)+"}")
}

// TestMarkOutlivesItsScripts checks that a server which has forgotten its scripts
// is sent them again, and that a closed driver has no marks.
func TestMarkOutlivesItsScripts(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	m := openOn(t, s, "")
	ctx := context.Background()
	for i := range 3 {
		s.Do(t, "SCRIPT", "FLUSH")
		want := driver.Mark{Token: uint64(i + 1), Value: fmt.Append(nil, i)}
		if err := m.SetMark(ctx, "n", want); err != nil {
			t.Fatal(err)
		}
		s.Do(t, "SCRIPT", "FLUSH")
		if got, err := m.Mark(ctx, "n"); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("Mark is %v, %v; want %v", got, err, want)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Mark(ctx, "n"); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Mark after Close: %v", err)
	}
	if err := m.SetMark(ctx, "n", driver.Mark{Token: 1}); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("SetMark after Close: %v", err)
	}
}
