package torture

import (
	"time"

	"github.com/holdfast-go/holdfast/check"
)

// setup is the first line that a client reads. A URL may have a password, so it
// comes this way and not as an argument.
type setup struct {
	Store      string        `json:"store"`
	Prefix     string        `json:"prefix"`
	P          int           `json:"p"`
	K          int           `json:"k"`
	Seed       uint64        `json:"seed"`
	TTL        time.Duration `json:"ttl"`
	Goroutines int           `json:"goroutines"`
	Names      []wireName    `json:"names"`
	Tokens     bool          `json:"tokens"`
	Probe      bool          `json:"probe"` // take each name once, and end
	Takes      time.Duration `json:"takes"` // how long a probe waits
	Long       int           `json:"long"`  // see Config
}

type wireName struct {
	Name  string `json:"name"`
	Limit int64  `json:"limit"`
	Alone bool   `json:"alone"`
}

// order is every later line that a client reads.
type order struct {
	Do   string `json:"do"`             // "disturb", "heal", "drain", "answer"
	Plan string `json:"plan,omitempty"` // of disturb

	N    int64 `json:"n,omitempty"` // the call that is answered
	OK   bool  `json:"ok,omitempty"`
	Val  int64 `json:"val,omitempty"`
	Twin int64 `json:"twin,omitempty"`
}

// What a client tells besides the history.
const (
	hello  check.What = "hello"  // it is open
	healed check.What = "healed" // a fault is over; Value is how much it met
	bye    check.What = "bye"    // it is done, and has closed
	broke  check.What = "broke"  // it cannot work; Text is why
)
