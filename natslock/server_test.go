package natslock_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/natslock"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// limited returns the context of one call.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// manager returns a connection of an operator, who changes buckets.
func manager(t *testing.T, s *servers.NATS) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(s.URL())
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	return js
}

// TestF107_OpenSaysThatJetStreamIsOff checks that a server without JetStream is one
// clear error, at once.
func TestF107_OpenSaysThatJetStreamIsOff(t *testing.T) {
	s := servers.StartNATS(t, "# without jetstream\n")
	d, err := natslock.OpenURL(limited(t), s.URL())
	if err == nil {
		_ = d.Close()
		t.Fatal("the server has no JetStream, and the store was opened")
	}
	if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "JetStream") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error is %q, want one line of class Unavailable about JetStream", err)
	}
}

// TestF107_WrongPasswordIsRefused checks credentials in a URL, and wrong URLs: each
// is answered by one line that says what to do and contains no credentials.
func TestF107_WrongPasswordIsRefused(t *testing.T) {
	s := servers.StartNATS(t, "authorization: {user: anna, password: sesame}\n")
	for url, says := range map[string]string{
		"nats://anna:wrongword@" + s.Addr():      "wants a user and a password that it knows",
		"nats://wrongword@" + s.Addr():           "as user:password@host",
		"nats://" + s.Addr():                     "as user:password@host",
		"nats://anna:wrong%word@" + s.Addr():     "cannot be read",
		"nats://anna:wrongword@:x:" + s.Addr():   "an IPv6 address in brackets",
		"nats:anna:wrongword@h":                  "write nats://",
		"nats://anna:wrongword@h:x/b":            "write a port as a number",
		"nats://anna:wrongword@h:99999":          "from 1 to 65535",
		"nats://anna:wrongword@h/a/b":            "the name of one bucket",
		"nats://anna:wrongword@a,nats://b":       "a scheme in a place of a host",
		"nats://anna:wrongword@a, b":             "a host is missing or malformed",
		"nats://anna:wrongword@h?replicas=9":     "not between 1 and 5",
		"nats://anna:wrongword@h?nkey=/no/one":   "has no readable seed",
		"tls://anna:wrongword@h?cert=/x":         "given together",
		"nats://anna:wrongword@":                 "a host is",
		"nats://anna:wrongword@h/b.c":            "bucket",
		"nats://anna:wrongword@h/b?x=1":          `unknown option "x"`,
		"nats://anna:wrongword@h/b?replicas=0":   "replicas",
		"nats://anna:wrongword@h/b?ca=f":         "needs the scheme tls",
		"nats://anna:wrongword@h/?creds=/no/one": "option creds",
		"redis://anna:wrongword@h":               "scheme",
	} {
		d, err := natslock.OpenURL(limited(t), url)
		if err == nil {
			_ = d.Close()
			t.Errorf("opened with wrong credentials")
			continue
		}
		if text := err.Error(); driver.ClassOf(err) != driver.Refused || !strings.Contains(text, says) || strings.Contains(text, "wrong") || strings.Contains(text, "\n") {
			t.Errorf("error is %q (%v), want one line of class Refused about %q, without the password", err, driver.ClassOf(err), says)
		}
	}
	d, err := natslock.OpenURL(limited(t), "nats://anna:sesame@"+s.Addr()+"/other-bucket")
	must(t, err)
	defer d.Close()
	if st, err := d.Join(limited(t), ticket("1", "a"), true); err != nil || st.State != driver.Held {
		t.Errorf("with the password: %v, %v", st.State, err)
	}
}

// rights is the configuration of users who lack one right each, and of one who has
// all.
const rights = `
authorization: {users: [
  {user: all, password: p}
  {user: nowrite, password: p, permissions: {publish: {deny: "$KV.>"}}}
  {user: noread, password: p, permissions: {publish: {deny: "$JS.API.STREAM.MSG.GET.>"}}}
  {user: noinfo, password: p, permissions: {publish: {deny: "$JS.API.STREAM.INFO.>"}}}
  {user: nocreate, password: p, permissions: {publish: {deny: "$JS.API.STREAM.CREATE.>"}}}
  {user: noinbox, password: p, permissions: {subscribe: {deny: "_INBOX.>"}}}
  {user: deaf, password: p, permissions: {subscribe: {deny: "holdfast.push.>"}}}
]}
`

// TestF107_MissingRightIsNamed checks that a request without the right to it is
// refused at once, by an error that names the subject.
func TestF107_MissingRightIsNamed(t *testing.T) {
	s := servers.StartNATS(t, rights)
	as := func(user string) (*natslock.Driver, error) {
		return natslock.OpenURL(limited(t), "nats://"+user+":p@"+s.Addr())
	}
	refused := func(user string, err error, names string) {
		t.Helper()
		if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: error is %v, want one of class Refused that names %s", user, err, names)
		}
	}
	_, err := as("nocreate")
	refused("nocreate, without a bucket", err, "$JS.API.STREAM.CREATE.KV_holdfast")
	all, err := as("all")
	must(t, err)
	defer all.Close()
	found, err := all.Check(limited(t))
	must(t, err)
	for _, f := range found {
		if f.Level == driver.Problem {
			t.Errorf("with all rights: %+v", f)
		}
	}
	for user, names := range map[string]string{"noinfo": "$JS.API.STREAM.INFO.KV_holdfast", "noinbox": "_INBOX.", "noread": "$JS.API.STREAM.MSG.GET.KV_holdfast"} {
		_, err := as(user)
		refused(user, err, names)
	}
	for user, names := range map[string]string{"nowrite": "$KV.holdfast.queue.", "nocreate": ""} {
		d, err := as(user)
		must(t, err)
		st, err := d.Join(limited(t), ticket(user, user), true)
		if names != "" {
			refused(user, err, names)
		} else if err != nil || st.State != driver.Held {
			t.Errorf("%s: %v, %v", user, st.State, err)
		}
		found, err := d.Check(limited(t))
		must(t, err)
		if last := found[len(found)-1]; names != "" && !strings.Contains(last.Detail, names) || (last.Level == driver.Problem) != (names != "") {
			t.Errorf("%s: Check says %+v", user, last)
		}
		must(t, d.Close())
	}
	deaf, err := as("deaf")
	must(t, err)
	defer deaf.Close()
	refused("deaf", deaf.Watch(limited(t), func(string, driver.Status) {}), "holdfast.push.holdfast.")
	if st, err := deaf.Join(limited(t), ticket("deaf", "deaf"), true); err != nil || st.State != driver.Held {
		t.Errorf("deaf: %v, %v", st.State, err)
	}
}

// TestF107_FullBucketReleases checks that a bucket without room refuses locks and
// still renews and releases them.
func TestF107_FullBucketReleases(t *testing.T) {
	s := servers.StartNATS(t, "")
	d := open(t, s, natslock.Options{})
	defer d.Close()
	ctx := limited(t)
	held, waiting := ticket("held", "n"), ticket("waiting", "n")
	for _, x := range []*driver.Ticket{held, waiting} {
		if _, err := d.Join(ctx, x, true); err != nil {
			t.Fatal(err)
		}
	}
	js := manager(t, s)
	stream, err := js.Stream(ctx, "KV_"+natslock.DefaultBucket)
	must(t, err)
	config := stream.CachedInfo().Config
	config.MaxBytes = int64(stream.CachedInfo().State.Bytes) + 8
	_, err = js.UpdateStream(ctx, config)
	must(t, err)
	_, err = d.Join(ctx, ticket("late", "other"), true)
	if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "maximum bytes") {
		t.Errorf("a Join in a full bucket: %v; want an error of class Unavailable about its size", err)
	}
	sts, err := d.Renew(ctx, []driver.Ref{{Ticket: held, State: driver.Held}})
	if err != nil || sts[0].State != driver.Held {
		t.Errorf("Renew: %+v, %v", sts, err)
	}
	sts, err = d.Leave(ctx, []driver.Ref{{Ticket: held, State: driver.Held}})
	if err != nil || sts[0].State != driver.Held {
		t.Errorf("Leave: %+v, %v", sts, err)
	}
	sts, err = d.Renew(ctx, []driver.Ref{{Ticket: waiting, State: driver.Waiting}})
	if err != nil || sts[0].State != driver.Held {
		t.Errorf("the waiter after the release: %+v, %v", sts, err)
	}
}

// TestF39_DeletedBucketIsMadeAnew checks that an open driver makes the bucket again
// when somebody has deleted it, and that tokens go on growing.
func TestF39_DeletedBucketIsMadeAnew(t *testing.T) {
	s := servers.StartNATS(t, "")
	d := open(t, s, natslock.Options{})
	defer d.Close()
	ctx := limited(t)
	first, second := ticket("1", "n"), ticket("2", "n")
	before, err := d.Join(ctx, first, true)
	must(t, err)
	must(t, manager(t, s).DeleteStream(ctx, "KV_"+natslock.DefaultBucket))
	sts, err := d.Renew(ctx, []driver.Ref{{Ticket: first, State: driver.Held}})
	if err != nil || sts[0].Err != nil || sts[0].State != driver.Gone {
		t.Errorf("Renew: %+v, %v; want Gone", sts, err)
	}
	after, err := d.Join(ctx, second, true)
	if err != nil || after.State != driver.Held || after.Token <= before.Token {
		t.Errorf("Join: %+v, %v; want Held with a token above %d", after, err, before.Token)
	}
}

// TestOpenRefusesUnsuitableBuckets checks that a bucket that would drop locks is
// refused.
func TestOpenRefusesUnsuitableBuckets(t *testing.T) {
	s := servers.StartNATS(t, "")
	ctx := limited(t)
	js := manager(t, s)
	for _, c := range []struct {
		says   string
		change func(*jetstream.StreamConfig)
	}{
		{"allow_msg_ttl", func(c *jetstream.StreamConfig) { c.AllowMsgTTL = false }},
		{"history is 3", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 3 }},
		{"max_age 1h", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }},
		{"discards old", func(c *jetstream.StreamConfig) { c.Discard, c.MaxBytes = jetstream.DiscardOld, 1<<20 }},
		{"", func(c *jetstream.StreamConfig) {}},
		{"", func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }},
	} {
		config := jetstream.StreamConfig{Name: "KV_b", Subjects: []string{"$KV.b.>"}, MaxMsgsPerSubject: 1, AllowMsgTTL: true, Discard: jetstream.DiscardNew}
		c.change(&config)
		_, err := js.CreateStream(ctx, config)
		must(t, err)
		d, err := natslock.Open(ctx, []string{s.URL()}, natslock.Options{Bucket: "b"})
		if err == nil {
			if memory := config.Storage == jetstream.MemoryStorage; memory == d.Traits().SurvivesRestart || memory != (len(d.Notices()) > 0) {
				t.Errorf("storage %v: %+v, %v", config.Storage, d.Traits(), d.Notices())
			}
			must(t, d.Close())
		}
		if c.says == "" && err != nil || c.says != "" && (driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("error is %v, want %q", err, c.says)
		}
		must(t, js.DeleteStream(ctx, "KV_b"))
	}
}

// TestF21_SilentConnectionIsReplaced checks that a driver leaves a connection that
// fell silent, while new ones can be made.
//
// Covers: F74.
func TestF21_SilentConnectionIsReplaced(t *testing.T) {
	s := servers.SharedNATS(t)
	proxy := faultproxy.Between(t, s.Addr())
	d, err := natslock.OpenURL(limited(t), "nats://"+proxy.Addr())
	must(t, err)
	defer d.Close()
	gap := make(chan struct{}, 1)
	must(t, d.Watch(t.Context(), func(id string, _ driver.Status) {
		if id == "" {
			select {
			case gap <- struct{}{}:
			default:
			}
		}
	}))
	proxy.SilenceOpen()
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := d.Join(short, ticket("1", "silent"), true); driver.ClassOf(err) != driver.Unknown {
		t.Errorf("Join on a silent connection: %v; want an error of class Unknown", err)
	}
	select {
	case <-gap:
	case <-limited(t).Done():
		t.Fatal("the connection was not opened anew within a minute")
	}
	if st, err := d.Join(limited(t), ticket("2", "silent"), true); err != nil {
		t.Errorf("Join on the new connection: %+v, %v", st, err)
	}
}

// TestRequestEndsWithItsConnection breaks the connection of a client in the middle of a
// request: it is told so at once, and not when its time is over, so that it can ask again.
func TestRequestEndsWithItsConnection(t *testing.T) {
	s := servers.SharedNATS(t)
	for _, when := range []faultproxy.When{faultproxy.Before, faultproxy.After} {
		for _, how := range []faultproxy.How{faultproxy.Close, faultproxy.Reset} {
			proxy := faultproxy.Between(t, s.Addr())
			d, err := natslock.OpenURL(limited(t), "nats://"+proxy.Addr())
			must(t, err)
			defer d.Close()
			for k := range 4 { // the messages of a Join
				name := fmt.Sprintf("ends-%v-%v-%d", when, how, k)
				proxy.Arm(1+k, when, how)
				begun := time.Now()
				st, err := d.Join(limited(t), ticket(fmt.Sprint(k+1), name), true)
				if took := time.Since(begun); took > 3*time.Second {
					t.Errorf("Join, message %d, %v %v: %v, %v after %v", k+1, when, how, st.State, err, took)
				}
				proxy.Disarm()
				if st, err := d.Join(limited(t), ticket(fmt.Sprint(k+1), name), true); err != nil || st.State != driver.Held {
					t.Errorf("the repeated Join: %v, %v", st.State, err)
				}
			}
		}
	}
}

// TestTLSChecksTheServer checks the scheme tls: with the server's authority a lock is
// served, and without it the server is refused.
func TestTLSChecksTheServer(t *testing.T) {
	c := servers.NewCerts(t, t.TempDir())
	s := servers.StartNATS(t, fmt.Sprintf("tls: {cert_file: %q, key_file: %q}\n", c.Cert, c.Key))
	d, err := natslock.OpenURL(limited(t), "tls://"+s.Addr()+"?ca="+url.QueryEscape(c.CA))
	must(t, err)
	defer d.Close()
	if st, err := d.Join(limited(t), ticket("1", "a"), true); err != nil || st.State != driver.Held {
		t.Errorf("Join: %v, %v", st.State, err)
	}
	d, err = natslock.OpenURL(limited(t), "tls://"+s.Addr())
	if err == nil {
		_ = d.Close()
		t.Error("the certificate is of an unknown authority, and the store was opened")
	} else if !strings.Contains(err.Error(), "certificate") {
		t.Errorf("error is %v, want one about the certificate", err)
	}
}
