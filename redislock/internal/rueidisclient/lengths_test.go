package rueidisclient

import (
	"strings"
	"testing"
)

// TestLengths checks the lengths in a server's bytes, wherever the reads
// divide these.
func TestLengths(t *testing.T) {
	for _, c := range []struct {
		said string
		bad  bool
	}{
		{said: "+OK\r\n:12\r\n-ERR no $9223372036854775807\r\n"},
		{said: "$5\r\n$-7\r\n\r\n$0\r\n\r\n$-1\r\n=7\r\ntxt:$-7\r\n!3\r\nERR\r\n"},
		{said: "*2\r\n$3\r\n$-2\r\n*-1\r\n~0\r\n%1\r\n+a\r\n:-5\r\n>1\r\n_\r\n#t\r\n,1.5\r\n(99999999999999999999\r\n"},
		{said: "|1\r\n+a\r\n+b\r\n:1\r\n$536870912\r\n*-9"}, // the negative length is within the text
		{said: "HTTP/1.1 400\r\n$9223372036854775807\r\n"},  // the client notices that this is no answer
		{said: "$536870913\r\n", bad: true},
		{said: "$9223372036854775807\r\n", bad: true},
		{said: "+OK\r\n$-2\r\n", bad: true},
		{said: "*1\r\n*-7\r\n", bad: true},
		{said: "*16777217\r\n", bad: true},
		{said: "%8388609\r\n", bad: true},
		{said: "%-1\r\n", bad: true},
		{said: "|-1\r\n", bad: true},
		{said: "*?\r\n", bad: true}, // no server sends this, and each part has a length again
		{said: "$1x\r\n", bad: true},
		{said: "$12\n", bad: true},
		{said: "~\x1a\x1e", bad: true}, // which may never end
		{said: "$" + strings.Repeat("0", 30), bad: true},
	} {
		for cut := range len(c.said) {
			var l lengths
			err := l.see([]byte(c.said[:cut]))
			if err == nil {
				err = l.see([]byte(c.said[cut:]))
			}
			if (err != nil) != c.bad {
				t.Errorf("%.40q, %d bytes and the rest: %v", c.said, cut, err)
			}
		}
	}
}

func BenchmarkLengths(b *testing.B) {
	said := []byte("*4\r\n:1\r\n$20\r\n01234567890123456789\r\n:1234567890\r\n:0\r\n")
	var l lengths
	for b.Loop() {
		if err := l.see(said); err != nil {
			b.Fatal(err)
		}
	}
}
