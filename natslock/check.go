package natslock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/nats-io/nats.go/jetstream"
)

// checkStream returns an error for a bucket that would lose tickets, or whose
// server is too old.
func checkStream(info *jetstream.StreamInfo) error {
	c := &info.Config
	var err error
	switch {
	case info.TimeStamp.IsZero():
		err = errors.New("the server does not tell the time; it has to be of version 2.11 or newer")
	case !c.AllowMsgTTL:
		err = errors.New("its stream has no allow_msg_ttl: let the driver create the bucket, on servers of version 2.11 or newer")
	case c.MaxMsgsPerSubject != 1:
		err = fmt.Errorf("its history is %d; it has to be 1", c.MaxMsgsPerSubject)
	case c.MaxAge != 0:
		err = fmt.Errorf("its max_age %v would remove locks; it has to be 0", c.MaxAge)
	case c.Discard != jetstream.DiscardNew && (c.MaxBytes > 0 || c.MaxMsgs > 0):
		err = errors.New("it discards old values when it is full, and would remove locks; set discard to new")
	case c.Mirror != nil || len(c.Sources) > 0 || c.Retention != jetstream.LimitsPolicy || c.Sealed:
		err = errors.New("it is a mirror, has sources, is sealed, or retains by interest: it is not made for locks")
	}
	return driver.Wrap(driver.Refused, err)
}

// noticesOf returns what weakens the promises in a bucket's configuration.
func noticesOf(info *jetstream.StreamInfo) []driver.Finding {
	var found []driver.Finding
	if info.Config.Storage != jetstream.FileStorage {
		found = append(found, driver.Finding{
			Topic: "storage", Level: driver.Warning,
			Detail: "the bucket is in memory: a restart of its servers ends all holds",
			Advice: "create the bucket with file storage",
		})
	}
	return found
}

// Notices implements [driver.Noticer].
func (d *Driver) Notices() []driver.Finding { return d.notices }

// Check implements [driver.Checker].
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	info, err := d.bucket.streamInfo(ctx)
	if err != nil {
		return nil, err
	}
	trip := time.Since(began)
	found := noticesOf(info)
	if err := checkStream(info); err != nil {
		found = append(found, driver.Finding{Topic: "bucket", Level: driver.Problem, Detail: err.Error(), Advice: "create the locks' bucket anew, with no lock held"})
	} else {
		found = append(found, driver.Finding{Topic: "bucket", Detail: fmt.Sprintf("%s, in %s storage, %d keys", d.bucket.name, info.Config.Storage, info.State.Msgs)})
	}
	replicas := driver.Finding{Topic: "replicas", Detail: fmt.Sprintf("%d servers keep the bucket", info.Config.Replicas)}
	if info.Config.Replicas < 3 {
		replicas.Level = driver.Warning
		replicas.Detail = fmt.Sprintf("replicas of the bucket: %d. Its locks stop while that server is down, and are lost with its disk", info.Config.Replicas)
		replicas.Advice = "run three servers and create the bucket with three replicas"
	}
	found = append(found, replicas, tripFinding(trip))
	return append(found, d.checkRights(ctx)), nil
}

func tripFinding(trip time.Duration) driver.Finding {
	f := driver.Finding{Topic: "round trip", Detail: trip.Round(10 * time.Microsecond).String()}
	if trip > MinTTL {
		f.Level = driver.Warning
		f.Advice = fmt.Sprintf("use TTLs of at least %v", (20 * trip).Round(time.Second))
	}
	return f
}

// checkRights makes the requests of a lock that change nothing. A write is made on
// the condition of a revision that no key has, so that the server refuses it after
// it has looked at the rights.
func (d *Driver) checkRights(ctx context.Context) driver.Finding {
	f := driver.Finding{Topic: "rights", Detail: "the user may read, write and notify"}
	key := queueKey("holdfast check " + d.pushes.address)
	_, err := d.bucket.get(ctx, key)
	if err == nil {
		_, err = d.bucket.write(ctx, key, []byte("{}"), 1<<53, 0)
	}
	if err != nil {
		f.Level, f.Detail = driver.Problem, err.Error()
		f.Advice = "give the user the rights that the page of this store lists"
	}
	return f
}
