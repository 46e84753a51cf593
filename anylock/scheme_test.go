package anylock

import (
	"strings"
	"testing"
)

// TestF133_WrongSchemeNamesTheRightOne gives texts that are no URL of a store:
// one short line says what was probably meant, and repeats no password.
func TestF133_WrongSchemeNamesTheRightOne(t *testing.T) {
	const known = "known schemes are memory, sqlite, redis, redis-sentinel, redis-cluster, redlock, etcd, zk, postgres, mysql, holdfast"
	for text, want := range map[string]string{
		"localhost:6379":                      "did you mean redis://...?",
		"127.0.0.1:5432":                      "did you mean postgres://...?",
		"db.example.org:3306/app":             "did you mean mysql://...?",
		"a:2181,b:2181,c:2181/locks":          "did you mean zk://...?",
		"[::1]:2379":                          "did you mean etcd://...?",
		"user:" + hush + "@h:6379":            "did you mean redis://...?",
		"postgre://h/db":                      "did you mean postgres://...?",
		"pg://u:" + hush + "@h/db":            "did you mean postgres://...?",
		"reddis://h":                          "did you mean redis://...?",
		"valkey://h":                          "did you mean redis://...?",
		"redis-sentinal://h/m":                "did you mean redis-sentinel://...?",
		"zookeeper://h":                       "did you mean zk://...?",
		"https://h:2379":                      "did you mean etcds://...?",
		"file:/var/lib/locks.db":              "did you mean sqlite:PATH?",
		"/var/lib/locks.db":                   "did you mean sqlite:PATH?",
		"locks.db":                            "did you mean sqlite:PATH?",
		hush:                                  known,
		"oracle://u:" + hush + "@h":           known,
		"mongodb://u:" + hush + "@h:27017/db": known,
	} {
		_, err := OpenDriver(t.Context(), text)
		if err == nil {
			t.Errorf("%s was opened", text)
			continue
		}
		got := err.Error()
		if !strings.HasSuffix(got, want) || len(got) > 176 || strings.ContainsAny(got, "\n") || strings.Contains(got, hush) {
			t.Errorf("%s: %q, want one short line that ends with %q", text, got, want)
		}
	}
}

// TestF133_EmptyPartsAreRefused gives URLs as a script makes them of variables
// that are not set.
func TestF133_EmptyPartsAreRefused(t *testing.T) {
	for url, want := range map[string]string{
		"redis://":                               "host",
		"redis://:6379":                          "host",
		"rediss://:" + hush + "@:6379/1":         "host",
		"redis://:@h":                            "user and password",
		"redis://@h":                             "user and password",
		"redis://h?timeout=":                     `"timeout"`,
		"redis://h?eviction=&prefix=a":           `"eviction"`,
		"redis://h?restart_guard":                `"restart_guard"`,
		"rediss://h?ca=":                         `"ca"`,
		"redis-sentinel://h,/m":                  "host",
		"redis-cluster://,h":                     "host",
		"redis-cluster://":                       "host",
		"redlock://a,:6379,c":                    "host",
		"redlock://a,b,c?restart_guard=":         `"restart_guard"`,
		"etcd://":                                "host",
		"etcd://h?dial_timeout=":                 `"dial_timeout"`,
		"zk://h,:2181":                           "host",
		"zk://":                                  "host",
		"postgres://:5432/db":                    "host",
		"postgres://u:" + hush + "@h/db?schema=": `"schema"`,
		"postgresql://h/db?sslmode=":             `"sslmode"`,
		"mysql://:3306/db":                       "host",
		"mysql://h/db?tls=":                      `"tls"`,
		"mariadb://h/db?table_prefix=":           `"table_prefix"`,
		"sqlite:/x?sync=":                        `"sync"`,
	} {
		_, err := OpenDriver(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "empty") {
			t.Errorf("%s: %v, want that %s is empty", url, err, want)
		} else if strings.Contains(err.Error(), hush) {
			t.Errorf("%s: the secret is in %q", url, err)
		}
	}
}

// TestPasswordWithQuestionMarkIsNotShown: a question mark in a password does not
// begin an option, which an error would name.
func TestPasswordWithQuestionMarkIsNotShown(t *testing.T) {
	for _, url := range []string{
		"redis://u:ab?" + hush + "@127.0.0.1:1",
		"redis://u:ab?" + hush + "@127.0.0.1:1?timeout=",
		"postgres://u:ab?" + hush + "@127.0.0.1:1/db?connect_timeout=",
	} {
		if _, err := OpenDriver(t.Context(), url); err == nil || strings.Contains(err.Error(), hush) {
			t.Errorf("%s: %v", url, err)
		}
	}
}
