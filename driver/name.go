package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxName is the longest legal name, in bytes.
const MaxName = 4096

// MaxOwner is the longest legal owner, in bytes.
const MaxOwner = 256

// MaxMeta is the longest metadata of a ticket, in bytes.
const MaxMeta = 4096

// CheckName returns an error when name is empty, longer than MaxName bytes or
// not UTF-8. Every other name is legal on every store.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("name is empty")
	case len(name) > MaxName:
		return fmt.Errorf("name is %d bytes long; the maximum is %d", len(name), MaxName)
	case !utf8.ValidString(name):
		return errors.New("name is not valid UTF-8")
	}
	return nil
}

// CheckOwner returns an error when owner is longer than MaxOwner bytes, not
// UTF-8, or contains a control character. The empty owner is legal: it means
// that each ticket owns itself.
func CheckOwner(owner string) error {
	switch {
	case len(owner) > MaxOwner:
		return fmt.Errorf("owner is %d bytes long; the maximum is %d", len(owner), MaxOwner)
	case !utf8.ValidString(owner):
		return errors.New("owner is not valid UTF-8")
	case strings.ContainsFunc(owner, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return errors.New("owner contains a control character")
	}
	return nil
}

// CheckMeta returns an error when meta is longer than MaxMeta bytes or not
// UTF-8.
func CheckMeta(meta string) error {
	switch {
	case len(meta) > MaxMeta:
		return fmt.Errorf("metadata is %d bytes long; the maximum is %d", len(meta), MaxMeta)
	case !utf8.ValidString(meta):
		return errors.New("metadata is not valid UTF-8")
	}
	return nil
}

// Charset encodes names for stores that do not take every byte: as a path
// element, a file, a key with structure.
type Charset struct {
	// Plain reports whether a byte stands for itself. '%' and '~' never do.
	Plain func(b byte) bool
	// Max is the greatest length of an encoded name in bytes; it is at least
	// 65, the length of a hashed one.
	Max int
}

// Encode writes name in the charset. Names of plain bytes stay as they are,
// other bytes become %XX, and a name that would be longer than Max becomes '~'
// and its SHA-256 in hex. Two names never have one encoding: '%' and '~' are
// always escaped, so that an encoding says how it was made, and hashes differ
// as long as SHA-256 does.
func (c Charset) Encode(name string) string {
	n := 0
	for i := range len(name) {
		if c.plain(name[i]) {
			n++
		} else {
			n += 3
		}
	}
	switch {
	case n > c.Max:
		sum := sha256.Sum256([]byte(name))
		return "~" + hex.EncodeToString(sum[:])
	case n == len(name):
		return name
	}
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, n)
	for i := range len(name) {
		if ch := name[i]; c.plain(ch) {
			b = append(b, ch)
		} else {
			b = append(b, '%', digits[ch>>4], digits[ch&15])
		}
	}
	return string(b)
}

// Decode returns the name from which Encode made enc. It returns an error for a
// hashed name, which cannot be decoded, and for a text that Encode never writes.
func (c Charset) Decode(enc string) (string, error) {
	if strings.HasPrefix(enc, "~") {
		return "", errors.New("a hashed name has no way back")
	}
	b := make([]byte, 0, len(enc))
	for i := 0; i < len(enc); i++ {
		switch {
		case enc[i] != '%':
			b = append(b, enc[i])
		case i+2 >= len(enc):
			return "", errors.New("an escape is cut short")
		default:
			var one [1]byte
			if _, err := hex.Decode(one[:], []byte(enc[i+1:i+3])); err != nil {
				return "", errors.New("an escape is not hexadecimal")
			}
			b = append(b, one[0])
			i += 2
		}
	}
	if name := string(b); c.Encode(name) == enc {
		return name, nil
	}
	return "", errors.New("not an encoded name")
}

func (c Charset) plain(b byte) bool { return b != '%' && b != '~' && c.Plain(b) }
