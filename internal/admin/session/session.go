// Package session seals the session of a browser in a cookie, without state at the server. The key is derived from
// the credential with which the caller signed in. So each server with this credential accepts the cookie, and a
// changed credential revokes it.
package session

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// The limits of a session. A session ends Idle after it was sealed last, and Most after the sign-in.
const (
	Idle = 15 * time.Minute
	Most = 8 * time.Hour
)

// maxSkew is the largest difference of the clocks of two servers.
const maxSkew = time.Minute

// A Key authenticates sessions.
type Key [sha256.Size]byte

// KeyOf returns the key for a secret credential.
func KeyOf(secret string) Key { return sum([]byte(secret), "chancery admin session key", "") }

// A Session is the content of a cookie. Everybody who has the cookie can read it.
type Session struct {
	Credential string `json:"credential"` // name of the credential, such as "token admin"
	ID         string `json:"id"`         // random
	Began      int64  `json:"began"`      // the time of the sign-in, in seconds of Unix
	Seen       int64  `json:"seen"`       // the time of the last seal

	// User is the user whom an issuer of tokens has authenticated; nil: the credential is the caller.
	User *User `json:"user,omitempty"`
}

// A User is a user of an issuer of tokens.
type User struct {
	Issuer  string         `json:"iss"`
	Subject string         `json:"sub"`
	Label   string         `json:"label"`
	Claims  map[string]any `json:"claims"`
}

// New returns a session that begins now.
func New(credential string, now time.Time) *Session {
	return &Session{Credential: credential, ID: rand.Text(), Began: now.Unix()}
}

// Seal returns the value of the cookie. The session is then valid for [Idle] from now on.
func (s *Session) Seal(key Key, now time.Time) string {
	s.Seen = now.Unix()
	content, _ := json.Marshal(s) // cannot fail
	return Sealed(key, "session", content)
}

// Sealed returns a text with the content and its authentication for one purpose.
func Sealed(key Key, purpose string, content []byte) string {
	mac := sum(key[:], purpose, string(content))
	return encode(content) + "." + encode(mac[:])
}

// Opened returns the content of a sealed text; false if the text was not sealed with this key for this purpose.
func Opened(key Key, purpose, text string) ([]byte, bool) {
	text, mac, _ := strings.Cut(text, ".")
	content, err := base64.RawURLEncoding.DecodeString(text)
	want := sum(key[:], purpose, string(content))
	return content, err == nil && hmac.Equal([]byte(mac), []byte(encode(want[:])))
}

// Open returns the session in a cookie; nil if it is not valid. The function keyOf returns the key of a credential, and
// false if there is none. With idle, the session may be idle: a stream that began during the session continues.
func Open(cookie string, keyOf func(credential string) (Key, bool), now time.Time, idle bool) (*Session, Key) {
	text, _, _ := strings.Cut(cookie, ".")
	content, err := base64.RawURLEncoding.DecodeString(text)
	s := &Session{}
	if err != nil || json.Unmarshal(content, s) != nil {
		return nil, Key{}
	}
	key, ok := keyOf(s.Credential)
	if _, authentic := Opened(key, "session", cookie); !ok || !authentic {
		return nil, Key{}
	}
	began, seen := now.Sub(time.Unix(s.Began, 0)), now.Sub(time.Unix(s.Seen, 0))
	if began < -maxSkew || seen < -maxSkew || began >= Most || seen >= Idle && !idle {
		return nil, Key{}
	}
	return s, key
}

// Left returns how long a session that is sealed now is valid.
func (s *Session) Left(now time.Time) time.Duration {
	return min(Idle, time.Unix(s.Began, 0).Add(Most).Sub(now))
}

// Token returns the token that each changing request with the cookie must have. A page of another origin cannot know
// it.
func (s *Session) Token(key Key) string {
	mac := sum(key[:], "csrf", s.ID)
	return encode(mac[:])
}

// sum authenticates a text for one purpose.
func sum(key []byte, purpose, text string) (out Key) {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(purpose + "\x00" + text))
	h.Sum(out[:0])
	return out
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
