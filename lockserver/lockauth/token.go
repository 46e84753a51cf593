package lockauth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
)

// tokenPrefix marks a token for those who search files and logs for secrets.
const tokenPrefix = "holdfast_"

// maxToken is the longest token that is hashed, in bytes.
const maxToken = 512

// NewToken returns a token of 256 random bits, for its client, and the hash of the
// token, for the file.
func NewToken() (token, hash string) {
	var b [32]byte
	rand.Read(b[:]) // never fails
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	return token, HashToken(token)
}

// HashToken returns the SHA-256 hash of a token in hexadecimal, as the file has it.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
