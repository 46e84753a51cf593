package anylock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// withStore adds a scheme to the table for one test.
func withStore(t *testing.T, scheme string, open func(ctx context.Context, url string) (holdfast.Driver, error)) {
	before := stores
	stores = append(stores[:len(stores):len(stores)], store{scheme, scheme + ":", true, open})
	t.Cleanup(func() { stores = before })
}

// TestEveryOpeningErrorIsAStoreError checks Op and class of the errors of
// opening: of the URL, of an option, of the store.
func TestEveryOpeningErrorIsAStoreError(t *testing.T) {
	var class driver.Class
	withStore(t, "failing", func(context.Context, string) (holdfast.Driver, error) {
		return nil, driver.Errorf(class, "the store says no")
	})
	var none context.Context
	for name, x := range map[string]struct {
		ctx         context.Context
		url         string
		class       driver.Class
		unavailable bool
		unknown     bool
		refused     bool
		config      bool
		opts        []holdfast.ClientOption
	}{
		"unavailable":    {t.Context(), "failing:", driver.Unavailable, true, false, false, false, nil},
		"unknown":        {t.Context(), "failing:", driver.Unknown, false, true, false, false, nil},
		"refused":        {t.Context(), "failing:", driver.Refused, false, false, true, false, nil},
		"empty URL":      {t.Context(), "", 0, false, false, true, true, nil},
		"no file":        {t.Context(), "@", 0, false, false, true, true, nil},
		"missing file":   {t.Context(), "@/nowhere/at/all", 0, false, false, true, true, nil},
		"unknown scheme": {t.Context(), "oracle://h", 0, false, false, true, true, nil},
		"bad host":       {t.Context(), "redis://h:port", 0, false, false, true, true, nil},
		"bad option":     {t.Context(), "redis://h?retry=3", 0, false, false, true, true, nil},
		"empty option":   {t.Context(), "redis://h?timeout=", 0, false, false, true, true, nil},
		"a folder":       {t.Context(), "sqlite:" + t.TempDir(), 0, false, false, true, true, nil},
		"client option":  {t.Context(), "memory:", 0, false, false, true, true, []holdfast.ClientOption{holdfast.WithTTL(-1)}},
		"no server":      {t.Context(), "redis://127.0.0.1:1", driver.Unavailable, true, false, false, false, nil},
		"nil context":    {none, "memory:", 0, false, false, true, true, nil},
	} {
		class = x.class
		c, err := Open(x.ctx, x.url, x.opts...)
		failed, ok := errors.AsType[*holdfast.StoreError](err)
		if c != nil || !ok || failed.Op != "open" || failed.Name != "" {
			t.Errorf("%s: %v, %#v", name, c, err)
			continue
		}
		if failed.Unavailable() != x.unavailable || failed.Unknown() != x.unknown || failed.Refused() != x.refused || errors.Is(err, ErrConfig) != x.config {
			t.Errorf("%s: %v: unavailable %v, unknown %v, refused %v, config %v", name, err,
				failed.Unavailable(), failed.Unknown(), failed.Refused(), errors.Is(err, ErrConfig))
		}
		if rest, ok := strings.CutPrefix(err.Error(), "holdfast: open: "); !ok || strings.Contains(rest, "open ") {
			t.Errorf("%s: message %q", name, err)
		}
	}
}

// TestOpenReadsTheURLOfAFile opens @FILE: its first line counts, without space,
// and no error shows what is in it.
func TestOpenReadsTheURLOfAFile(t *testing.T) {
	write := func(text string) string {
		name := filepath.Join(t.TempDir(), "store")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "@" + name
	}
	exclude(t, mustOpen(t, write("memory:of-a-file \nredis://other\n")), mustOpen(t, "memory:of-a-file"), true)
	for text, want := range map[string]string{
		"":                                       "is empty",
		"\ufeffmemory:x\n":                       "begins with a byte-order mark",
		"\nmemory:x\n":                           "is empty",
		"@" + hush:                               "not a URL",
		"redis://u:" + hush + "@h?retry=3":       "unknown option",
		strings.Repeat("x", 20<<10) + ":" + hush: "is longer than",
		"memory:" + strings.Repeat("x", 16<<10):  "is longer than",
	} {
		_, err := Open(t.Context(), write(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(deep(err), hush) || !errors.Is(err, ErrConfig) {
			t.Errorf("%.40q: %.200v, want %q", text, err, want)
		}
	}
}

// TestF135_OpenRetryWaitsForTheStore covers F135. It starts before its store: the
// pauses are between 0.1 s, less jitter, and 5 s, and it opens at the first attempt that succeeds.
func TestF135_OpenRetryWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		const answersAfter, upAfter = time.Minute / 2, time.Minute
		var attempts []time.Time
		withStore(t, "late", func(context.Context, string) (holdfast.Driver, error) {
			attempts = append(attempts, time.Now())
			switch time.Since(begun) / answersAfter {
			case 0:
				return nil, driver.Errorf(driver.Unavailable, "connection refused")
			case 1: // it has greeted, and gives no second answer
				return nil, driver.Errorf(driver.Unknown, "i/o timeout")
			}
			return memlock.New(memlock.NewStore()), nil
		})
		c, err := OpenRetry(t.Context(), "late:", holdfast.WithPrefix("p/"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if took := time.Since(begun); took < upAfter || took > upAfter+lastPause {
			t.Errorf("opened after %v, with a store that came after %v", took, upAfter)
		}
		if n := len(attempts); n < 12 || n > 40 {
			t.Errorf("%d attempts", n)
		}
		for i := 1; i < len(attempts); i++ {
			if pause := attempts[i].Sub(attempts[i-1]); pause < firstPause/2 || pause > lastPause {
				t.Errorf("pause %d is %v", i, pause)
			}
		}
	})
}

// TestF135_OpenRetryEnds covers F135. It checks what ends the attempts: the context,
// and an error that does not pass.
func TestF135_OpenRetryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class, attempts := driver.Unavailable, 0
		withStore(t, "down", func(context.Context, string) (holdfast.Driver, error) {
			attempts++
			return nil, driver.Errorf(class, "the store says no")
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := OpenRetry(ctx, "down:")
		failed, ok := errors.AsType[*holdfast.StoreError](err)
		if !ok || !failed.Unavailable() || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the store says no") {
			t.Errorf("%v", err)
		}
		if took := time.Since(begun); took != 10*time.Second || attempts < 4 {
			t.Errorf("%d attempts in %v", attempts, took)
		}
		class, attempts = driver.Refused, 0
		if _, err := OpenRetry(t.Context(), "down:"); err == nil || attempts != 1 {
			t.Errorf("%v: %v after %d attempts", class, err, attempts)
		}
		if _, err := OpenRetry(t.Context(), ""); !errors.Is(err, ErrConfig) {
			t.Error(err)
		}
	})
}
