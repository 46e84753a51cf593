package lockauth

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/lockserver"
)

// Bounds of a file.
const (
	maxFile      = 4 << 20 // bytes
	maxName      = 256     // bytes of a principal's name
	maxPrefix    = 1024    // bytes
	maxTokens    = 2       // hashes of a principal: the new one and the old one
	hashSize     = 32      // bytes of a hash
	uidPrefix    = "uid:"  // of the principals that are Unix peers
	maxHoldLimit = int64(1<<63-1) / int64(time.Millisecond)
)

// Rules has the principals of one file. It does not change, and is safe for
// concurrent use.
type Rules struct {
	byHash map[[hashSize]byte]*lockserver.Principal
	byCert map[string]*lockserver.Principal
	byName map[string]*lockserver.Principal
}

// fileJSON is the form of a file.
type fileJSON struct {
	Principals []principalJSON `json:"principals"`
}

type principalJSON struct {
	Name   string      `json:"name"`
	Hashes []string    `json:"token_sha256"`
	Certs  []string    `json:"cert"`
	Rights []grantJSON `json:"rights"`
}

type grantJSON struct {
	Prefix    *string            `json:"prefix"`
	May       []lockserver.Right `json:"may"`
	Waiters   int                `json:"waiters"`
	MaxHoldMS int64              `json:"max_hold_ms"`
}

// ParseRules reads the contents of a file. It returns an error for a field that it
// does not know, a member that is given twice, a token or certificate of two
// principals, and a principal that nothing identifies. The errors name the place, and
// contain no hash.
func ParseRules(data []byte) (*Rules, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("lockauth: the file has more than %d bytes", maxFile)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("lockauth: the file is not valid UTF-8")
	}
	if err := checkMembers(data); err != nil {
		return nil, fmt.Errorf("lockauth: %w", err)
	}
	var f fileJSON
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return nil, fmt.Errorf("lockauth: %w", err)
	}
	r := &Rules{
		byHash: make(map[[hashSize]byte]*lockserver.Principal),
		byCert: make(map[string]*lockserver.Principal),
		byName: make(map[string]*lockserver.Principal),
	}
	for i, p := range f.Principals {
		if err := r.add(p); err != nil {
			return nil, fmt.Errorf("lockauth: principal %d (%q): %w", i+1, p.Name, err)
		}
	}
	return r, nil
}

// checkMembers refuses JSON after the first value, and an object that has a member
// twice, of which a decoder would take one.
func checkMembers(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := checkValue(dec); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the file goes on after its object")
	}
	return nil
}

func checkValue(dec *json.Decoder) error {
	t, err := dec.Token()
	if err != nil {
		return err
	}
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for dec.More() {
		if open == '{' {
			t, err := dec.Token()
			if err != nil {
				return err
			}
			name := strings.ToLower(fmt.Sprint(t)) // the decoder ignores case
			if seen[name] {
				return fmt.Errorf("member %q is given twice", fmt.Sprint(t))
			}
			seen[name] = true
		}
		if err := checkValue(dec); err != nil {
			return err
		}
	}
	_, err = dec.Token() // the end
	return err
}

// add adds a principal.
func (r *Rules) add(p principalJSON) error {
	isPeer := strings.HasPrefix(p.Name, uidPrefix)
	switch {
	case CheckName(p.Name) != nil:
		return CheckName(p.Name)
	case r.byName[p.Name] != nil:
		return errors.New("the name is given to two principals")
	case isPeer && !isUID(strings.TrimPrefix(p.Name, uidPrefix)):
		return fmt.Errorf("the name begins with %s and does not go on with the number of a user", uidPrefix)
	case isPeer && len(p.Hashes)+len(p.Certs) > 0:
		return errors.New("a Unix peer has neither tokens nor certificates")
	case !isPeer && len(p.Hashes)+len(p.Certs) == 0:
		return errors.New("neither token_sha256 nor cert identifies it")
	case len(p.Hashes) > maxTokens:
		return fmt.Errorf("%d hashes in token_sha256; %d are the maximum, for a change from one to the other", len(p.Hashes), maxTokens)
	}
	known := &lockserver.Principal{Name: p.Name}
	for i, g := range p.Rights {
		grant, err := g.grant()
		if err != nil {
			return fmt.Errorf("rights %d: %w", i+1, err)
		}
		known.Grants = append(known.Grants, grant)
	}
	for i, text := range p.Hashes {
		raw, err := hex.DecodeString(text)
		if err != nil || len(raw) != hashSize {
			return fmt.Errorf("token_sha256 %d is not the SHA-256 hash of a token, 64 hexadecimal digits", i+1)
		}
		hash := [hashSize]byte(raw)
		if r.byHash[hash] != nil {
			return fmt.Errorf("token_sha256 %d is given twice", i+1)
		}
		r.byHash[hash] = known
	}
	for i, name := range p.Certs {
		if name == "" {
			return fmt.Errorf("cert %d is empty", i+1)
		}
		if r.byCert[name] != nil {
			return fmt.Errorf("cert %q is given twice", name)
		}
		r.byCert[name] = known
	}
	r.byName[p.Name] = known
	return nil
}

// CheckName returns an error for a name that no principal in a file can have: it has
// 1 to 256 bytes without control characters and spaces at its ends, and is not
// lockserver.LocalName.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the principal's name is missing")
	case len(name) > maxName:
		return fmt.Errorf("the principal's name has %d bytes; the maximum is %d", len(name), maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) || name != strings.TrimSpace(name):
		return errors.New("the principal's name has a control character, or a space at an end")
	case name == lockserver.LocalName:
		return fmt.Errorf("the principal's name %q stands for requests without credentials", name)
	}
	return nil
}

// isUID reports whether text is the number of a user as it is usually written.
func isUID(text string) bool {
	n, err := strconv.ParseUint(text, 10, 32)
	return err == nil && strconv.FormatUint(n, 10) == text
}

func (g grantJSON) grant() (lockserver.Grant, error) {
	switch {
	case g.Prefix == nil:
		return lockserver.Grant{}, errors.New("prefix is missing; the empty one covers all names")
	case len(*g.Prefix) > maxPrefix:
		return lockserver.Grant{}, fmt.Errorf("prefix has %d bytes; the maximum is %d", len(*g.Prefix), maxPrefix)
	case len(g.May) == 0:
		return lockserver.Grant{}, errors.New("may is missing: read, lock, break, metrics")
	case g.Waiters < 0:
		return lockserver.Grant{}, fmt.Errorf("waiters %d is negative", g.Waiters)
	case g.MaxHoldMS < 0 || g.MaxHoldMS > maxHoldLimit:
		return lockserver.Grant{}, fmt.Errorf("max_hold_ms %d is not a time in milliseconds", g.MaxHoldMS)
	case *g.Prefix != "" && slices.Contains(g.May, lockserver.RightMetrics):
		return lockserver.Grant{}, errors.New("metrics are those of all names: the right needs the prefix \"\"")
	}
	for _, right := range g.May {
		switch right {
		case lockserver.RightRead, lockserver.RightLock, lockserver.RightBreak, lockserver.RightMetrics:
		default:
			return lockserver.Grant{}, fmt.Errorf("may: %q is none of read, lock, break and metrics", string(right))
		}
	}
	return lockserver.Grant{Prefix: *g.Prefix, May: g.May, Waiters: g.Waiters, MaxHold: time.Duration(g.MaxHoldMS) * time.Millisecond}, nil
}
