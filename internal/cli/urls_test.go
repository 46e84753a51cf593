//go:build unix

package cli

import (
	"os"
	"strings"
	"testing"
)

// wrongURLs are mistakes that people make in the URLs of each store, each with
// the part of the answer that says what to do. hunter2Qx stands for a password.
var wrongURLs = map[string]map[string]string{
	"redis": {
		"redis:h":                            "write redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]",
		"redis://h:6379:6380":                "write HOST:PORT",
		"redis://h:99999":                    "from 1 to 65535",
		"redis://h:/0":                       "leave the colon out",
		"redis://a,b":                        "several are those of redis-cluster, redis-sentinel or redlock",
		"redis://u:hunter2Qx#@h":             "has to be written %23, in a password too",
		"redis://h?prefix=":                  `"prefix" of the URL is empty: give it a value or leave it out`,
		"redis://hunter2Qx@h":                "a password alone is written redis://:password@host",
		"redis://:hunter2Qx@h/cache":         "not the number of a database, such as /0",
		"redis://h?timeout=5":                "not a duration from 1ms to 1h, such as 5s",
		"redis://h?ca=ca.pem":                "needs the scheme rediss",
		"redis://:hunter2Qx@h?prefix=a%":     "a percent sign is written %25",
		"redis://::1:6379":                   "an IPv6 address in brackets",
		"redis://u:hunter2Qx@redis://h:6379": "write redis://",
		"redis":                              "did you mean redis://...?",
	},
	"redis-sentinel": {
		"redis-sentinel://h1,h2":                          "such as /mymaster",
		"redis-sentinel://h1,h2/my master":                "such as /mymaster",
		"redis-sentinel://h1/mymaster/0":                  "given by the option db",
		"redis-sentinel://h1;h2/m":                        "separated by commas, without spaces",
		"redis-sentinel://h1,h1/m":                        "a host more than once",
		"redis-sentinel://h1:x,h2/m":                      "from 1 to 65535",
		"redis-sentinel://h1/m?db=cache":                  "db is not the number of a database",
		"redis-sentinel://h1/m?sentinel_user=s":           "needs sentinel_password",
		"redis-sentinel://u:hunter2Qx,@h1/m":              "one in a password is percent-encoded",
		"redis-sentinel://hunter2Qx@h1/m":                 "a password alone is written",
		"redis-sentinel://h1/m?master=hunter2Qx":          "there are ca, cert, db,",
		"redis-sentinel:h1/m":                             "write redis-sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST...]/NAME",
		"redis-sentinel://u:hunter2Qx@a,u:hunter2Qx@b/m":  "stand once, before the first host",
		"redis-sentinel://h1/m?sentinel_password=":        "give it a value or leave it out",
		"redis-sentinel://h1,sentinel://h2:26379/mymaste": "write redis-sentinel://",
	},
	"redis-cluster": {
		"redis-cluster://h1/0":                          "leave it out: a cluster has the database 0 only",
		"redis-cluster://h1,h1:6379":                    "a host more than once",
		"redis-cluster://h1?restart_guard=on":           "for a single server: leave it out",
		"redis-cluster://h1:70000,h2":                   "from 1 to 65535",
		"redis-cluster://h1, h2":                        "separated by commas, without spaces",
		"redis-cluster://h1,redis://h2":                 "write redis-cluster://",
		"redis-cluster://hunter2Qx@h1":                  "a password alone is written",
		"redis-cluster://u:hunter2Qx@a,u:hunter2Qx@b":   "stand once, before the first host",
		"redis-cluster://h1?nodes=3":                    "there are ca, cert, dial_timeout,",
		"redis-cluster://h1,::1":                        "an IPv6 address in brackets",
		"redis-cluster://h1?min_replicas=most":          "not a number from 0 to",
		"rediss-cluster://h1?cert=/nowhere/hunter2.pem": "given together or not at all",
	},
	"redlock": {
		"redlock://a,b":         "an odd number of them, at least 3",
		"redlock://a,b,c,d":     "an odd number of them, at least 3",
		"redlock://a,b,a:6379":  "have to be servers of their own",
		"redlock://a/0,b/0,c/0": "an odd number of them, at least 3",
		"redlock://u:hunter2Qx@a,u:hunter2Qx@b,u:hunter2Qx@c": "stand once, before the first host",
		"redlock://a,b,c:0":               "from 1 to 65535",
		"redlock://a;b;c":                 "separated by commas, without spaces",
		"redlock://a,b,c?quorum=2":        "there are ca, cert, dial_timeout,",
		"redlock://a,b,c?restart_guard=5": "such as 30s",
		"redlock://a,b,c/main":            "such as /0",
		"redlock:a,b,c":                   "write redlock://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]",
		"redlock://a,redis://b,c":         "write redlock://",
	},
	"etcd": {
		"etcd://http://h:2379":          "write etcd://[USER:PASSWORD@]HOST[:PORT][,HOST...]",
		"etcd://h/locks":                "given by the options namespace and prefix",
		"etcd://h:client":               "from 1 to 65535",
		"etcd://hunter2Qx@h":            "etcd://user:password@host",
		"etcd://u:hunter2Qx:x@h":        "have to be percent-encoded",
		"etcd://h?timeout=5s":           "there are ca, cert, dial_timeout, key, namespace, prefix",
		"etcd://h?dial_timeout=5":       "such as 5s",
		"etcd://h?prefix=":              "give it a value or leave it out",
		"etcd://h?prefix=a/&prefix=b/":  "more than once",
		"etcd://h?cert=c.pem":           "needs the scheme etcds",
		"etcd://[::1:2379":              "an IPv6 address in brackets",
		"etcd:h:2379":                   "write etcd://",
		"etcds://h?ca=/nowhere/at/all":  "ca: open /nowhere/at/all: no such file",
		"etcd3://u:hunter2Qx@h1,h2":     "did you mean etcd://...?",
		"etcd://u:hunter2Qx@h1:2379 h2": "separated by commas, without spaces",
	},
	"zookeeper": {
		"zookeeper://h:2181":         "did you mean zk://...?",
		"zk:h":                       "write zk://[USER:PASSWORD@]HOST[:PORT][,HOST...][/CHROOT]",
		"zk:///locks":                "name a server, such as localhost",
		"zk://h1/locks,h2/locks":     "all hosts stand before the path",
		"zk://h:2181:2888":           "write HOST:PORT",
		"zk://h:zero":                "from 1 to 65535",
		"zk://hunter2Qx@h":           "zk://user:password@host",
		"zk://h?session=10s":         "there are acl, ca, cert, dial_timeout,",
		"zk://h?tick=2":              "want a time such as 2s",
		"zk://h?acl=creator":         "the URL has no user",
		"zk://h?acl=mine":            "want open or creator",
		"zk://h//locks":              "has an element that ZooKeeper does not take",
		"zk://h?root=/locks//a":      "has an element that ZooKeeper does not take",
		"zk://u:hunter2Qx%@h":        "has to be percent-encoded",
		"zk://h;h2":                  "separated by commas, without spaces",
		"zks://h?cert=c.pem&acl=all": "want open or creator",
	},
	"mysql": {
		"mysql://h":                                "mysql://user@host/database",
		"mysql:///db":                              "or the option socket",
		"mysql://u:hunter2Qx@tcp(h:3306)/db":       "write mysql://[USER:PASSWORD@]HOST[:PORT]/DATABASE",
		"mysql://h1,h2/db":                         "name the server that takes writes",
		"mysql://h:99999/db":                       "from 1 to 65535",
		"mysql://h/db?parseTime=true":              "there are table_prefix, max_conns,",
		"mysql://h/db?max_conns=none":              "such as 4",
		"mysql://h/db?connect_timeout=5":           "such as 5s",
		"mysql://h/db?tls=required":                "none of true, preferred, skip-verify and false",
		"mysql://localhost/db?tls=false&tls_ca=/x": "goes with no other option of TLS",
		"mysql://h/db?tls_ca=/nowhere/ca":          "no such file",
		"mysql://h/db?table_prefix=App-":           "lower-case letters, digits and underscores",
		"mysql://h/db?max_conns=1&max_conns=2":     "given 2 times",
		"mysql://u:hunter2Qx%@h/db":                "a percent sign and two hex digits",
		"mysql+pymysql://u:hunter2Qx@h:3306/db":    "did you mean mysql://...?",
	},
	"postgres": {
		"postgres:h/db":                             "write postgres://[USER:PASSWORD@]HOST[:PORT]/DATABASE",
		"postgres://h:x/db":                         "from 1 to 65535",
		"postgres://h1:1,h2:99999/db":               "from 1 to 65535",
		"postgres://h/db?sslmode=yes":               "one of disable, allow, prefer, require, verify-ca and verify-full",
		"postgres://h/db?ssl=true":                  "there are schema, table_prefix and listen",
		"postgres://h/db?connect_timeout=5s":        "a number of whole seconds, such as 5",
		"postgres://h/db?pool_max_conns=0":          "pool_max_conns",
		"postgres://h/db?target_session_attrs=main": "one of any, read-write,",
		"postgres://h/db?listen=h/x":                "HOST:PORT",
		"postgres://h/db?schema=a.b":                "letters, digits and any of _ $ -",
		"postgres://h/db?sslcert=/nowhere/c":        "sslkey",
		"postgres://h/db?sslrootcert=/nowhere/ca":   "no such file",
		"postgres://h/db?schema=a&schema=b":         "given 2 times",
		"postgres://u:hunter2Qx#1@h/db":             "has to be written %23, in a password too",
		"pg://u:hunter2Qx@h/db":                     "did you mean postgres://...?",
	},
	"sqlite": {
		"sqlite:":                      "write sqlite:PATH",
		"sqlite:/var/lib/":             "the store is a file",
		"sqlite:.":                     "the store is a file",
		"sqlite::memory:":              "write memory: as its URL",
		"sqlite:~/locks.db":            "write sqlite:$HOME/... or the whole path",
		"sqlite://locks.db":            "a relative one is written sqlite:locks.db",
		"sqlite://localhost/var/x.db":  "followed by an absolute path",
		"sqlite:x.db?mode=memory":      "there are sync, dir and fs",
		"sqlite:x.db?sync=off":         "full or normal",
		"sqlite:x.db?dir=make":         "option dir is create",
		"sqlite:x.db?fs=":              "give it a value or leave it out",
		"sqlite:x.db?sync=full&sync=a": "given 2 times",
		"sqlite:100%.db":               "a percent sign is written %25",
		"sqlite:a%00b":                 "a NUL byte",
		"sqlite3:x.db":                 "did you mean sqlite:PATH?",
		"locks.db":                     "did you mean sqlite:PATH?",
	},
	"memory": {
		"memory":             "did you mean memory:?",
		"memory://":          "memory: or memory:NAME",
		"memory:/a":          "memory: or memory:NAME",
		"memory:a/b":         "memory: or memory:NAME",
		"memory:a?size=1":    "memory: or memory:NAME",
		"memory:a#b":         "memory: or memory:NAME",
		"memory:a b":         "write memory:NAME with letters,",
		"memory::memory:":    "write memory:NAME with letters,",
		"memory:a%20b":       "write memory:NAME with letters,",
		"memory:$NAME":       "write memory:NAME with letters,",
		"memory:h:6379":      "write memory:NAME with letters,",
		"mem:a":              "did you mean memory:?",
		"memory:me@h.domain": "write memory:NAME with letters,",
	},
	"holdfast": {
		"holdfast":                                 "did you mean holdfast://...?",
		"holdfast:h":                               "write holdfast://HOST[:PORT][,HOST...]",
		"holdfast://":                              "name a server, such as localhost",
		"holdfast://:7420":                         "name a server, such as localhost",
		"holdfast://h,,g":                          "name a server, such as localhost",
		"holdfast://h, g":                          "separated by commas, without spaces",
		"holdfast://h:0":                           "from 1 to 65535",
		"holdfast://h:7420,h":                      "there twice",
		"holdfast://h/locks":                       "the servers of a store are holdfast://HOST[:PORT][,HOST...]",
		"holdfast://http://h:7420":                 "write holdfast://",
		"holdfast://::1":                           "an IPv6 address in brackets",
		"holdfast://hunter2Qx@h":                   "from the file of the option token_file",
		"holdfast://h?token_file=":                 "give it a value or leave it out",
		"holdfast://h?token_file=/t":               "by holdfasts:// only",
		"holdfasts://h?token_file=/nowhere/token":  "option token_file: open /nowhere/token",
		"holdfasts://h?token_file=/dev/null":       "one line that a header can have",
		"holdfasts://h?token=hunter2Qx":            "there are ca, cert, key, server_name, token_file",
		"holdfasts://h?ca=/nowhere/ca.pem":         "option ca: open /nowhere/ca.pem",
		"holdfast://h?ca=/nowhere/ca.pem":          "needs the scheme holdfasts",
		"holdfast-unix:":                           "with an absolute path",
		"holdfast-unix:sock":                       "with an absolute path",
		"holdfast-unix:/s?token_file=/nowhere/tok": "option token_file: open /nowhere/tok",
	},
}

// TestF133_WrongURLSaysWhatToDo gives each store at least ten wrong URLs. Each
// is answered by one line that says what to do, before anything is sent, and
// with the status of a wrong command line.
func TestF133_WrongURLSaysWhatToDo(t *testing.T) {
	t.Chdir(t.TempDir()) // where a mistake must not make a file
	for store, urls := range wrongURLs {
		if len(urls) < 10 {
			t.Errorf("%s has %d wrong URLs, want at least 10", store, len(urls))
		}
		for url, advice := range urls {
			r := holdfastHere("--store", url, "run", "n", "--", "true").want(t, exitUsage, "", advice)
			if lines := strings.Count(r.err, "\n"); lines != 1 || r.out != "" {
				t.Errorf("%s: want one line, have %q", url, r.err)
			}
			if strings.Contains(r.err, "hunter2Qx") {
				t.Errorf("%s: a password is shown: %q", url, r.err)
			}
		}
	}
	if files, err := os.ReadDir("."); err != nil || len(files) > 0 {
		t.Errorf("%v, %v were made", files, err)
	}
}
