package anylock

import (
	"cmp"
	"slices"
	"strings"
)

// otherNames are schemes that people write in place of those of the table.
var otherNames = map[string]string{
	"valkey": "redis", "valkeys": "rediss", "redis+tls": "rediss", "redis+ssl": "rediss",
	"sentinel": "redis-sentinel", "redis+sentinel": "redis-sentinel", "cluster": "redis-cluster", "redis+cluster": "redis-cluster",
	"zookeeper": "zk", "etcd3": "etcd", "http": "etcd", "https": "etcds",
	"pg": "postgres", "pgsql": "postgres", "psql": "postgres", "postgresql+psycopg2": "postgres",
	"mysql2": "mysql", "mysql+pymysql": "mysql", "maria": "mariadb",
	"sqlite3": "sqlite", "file": "sqlite", "mem": "memory",
}

// usualPorts are the ports that servers listen on unless told otherwise.
var usualPorts = map[string]string{
	"6379": "redis", "6380": "rediss", "26379": "redis-sentinel", "2379": "etcd", "2181": "zk", "2281": "zks",
	"7420": "holdfast", "5432": "postgres", "6432": "postgres", "3306": "mysql",
}

// guessScheme returns the scheme that was probably meant by an unknown scheme and
// the rest of its URL, or "". Without a scheme, rest is the whole text.
func guessScheme(scheme, rest string) string {
	if name, ok := otherNames[scheme]; ok {
		return name
	}
	if name := usualPorts[portOf(rest)]; name != "" {
		return name
	}
	if scheme == "" {
		if word := strings.ToLower(rest); otherNames[word] != "" || slices.Contains(Schemes(), word) {
			return cmp.Or(otherNames[word], word) // a scheme alone
		}
		if strings.ContainsAny(rest, "/.\\") && !strings.ContainsAny(rest, "@:") {
			return "sqlite" // the path of a file
		}
		return ""
	}
	best, distance := "", 2 // up to two letters are a typing mistake, more are another word
	for _, s := range stores {
		if d := editDistance(scheme, s.scheme); d <= distance && (best == "" || d < distance) {
			best, distance = s.scheme, d
		}
	}
	return best
}

// portOf returns the port of a text of the form host:port, or of the form port
// where the host was taken for a scheme.
func portOf(rest string) string {
	rest = strings.TrimPrefix(rest, "//")
	if end := strings.IndexAny(rest, "/?,"); end >= 0 {
		rest = rest[:end]
	}
	return rest[strings.LastIndexByte(rest, ':')+1:]
}

// suggestion returns a URL to write: of the scheme that was probably meant, or of
// the known ones.
func suggestion(scheme string) string {
	switch scheme {
	case "":
		return "known schemes are " + strings.Join(mainSchemes(), ", ")
	case "memory":
		return "did you mean memory:?"
	case "sqlite":
		return "did you mean sqlite:PATH?"
	case "holdfast-unix":
		return "did you mean holdfast-unix:/PATH?"
	}
	return "did you mean " + scheme + "://...?"
}

// mainSchemes returns the schemes, without TLS variants and second names.
func mainSchemes() []string {
	var names []string
	for _, s := range stores {
		if !strings.Contains(s.form, "... (") {
			names = append(names, s.scheme)
		}
	}
	return names
}

// editDistance returns the number of letters to add, remove or change to make b
// from a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
