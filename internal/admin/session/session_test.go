package session

import (
	"strings"
	"testing"
	"time"
)

var now = time.Unix(1_700_000_000, 0)

func keys(secret string) func(string) (Key, bool) {
	return func(name string) (Key, bool) { return KeyOf(secret), name == "token a" }
}

// A session ends after a time without a request, after a day of work, and with its credential.
func TestSessionEnds(t *testing.T) {
	s := New("token a", now)
	cookie := s.Seal(KeyOf("secret"), now)
	late := New("token a", now.Add(-Most+time.Minute)).Seal(KeyOf("secret"), now)
	for name, c := range map[string]struct {
		cookie string
		keys   func(string) (Key, bool)
		after  time.Duration
		idle   bool
		ok     bool
	}{
		"at once":                  {cookie, keys("secret"), 0, false, true},
		"before it is idle":        {cookie, keys("secret"), Idle - time.Second, false, true},
		"idle":                     {cookie, keys("secret"), Idle, false, false},
		"idle, of a stream":        {cookie, keys("secret"), Idle, true, true},
		"of a stream, much later":  {cookie, keys("secret"), Most, true, false},
		"before its longest time":  {late, keys("secret"), 59 * time.Second, false, true},
		"after its longest time":   {late, keys("secret"), time.Minute, false, false},
		"with another secret":      {cookie, keys("other"), 0, false, false},
		"of another credential":    {New("token b", now).Seal(KeyOf("secret"), now), keys("secret"), 0, false, false},
		"of a clock that is ahead": {cookie, keys("secret"), -30 * time.Second, false, true},
		"from the future":          {cookie, keys("secret"), -2 * time.Minute, false, false},
		"nothing":                  {"", keys("secret"), 0, false, false},
		"no seal":                  {strings.Split(cookie, ".")[0], keys("secret"), 0, false, false},
		"another seal":             {strings.Split(cookie, ".")[0] + "." + strings.Split(late, ".")[1], keys("secret"), 0, false, false},
	} {
		if got, _ := Open(c.cookie, c.keys, now.Add(c.after), c.idle); (got != nil) != c.ok {
			t.Errorf("SAFE-20 %s: %v", name, got)
		}
	}
	if s.Left(now) != Idle || s.Left(now.Add(Most-time.Minute)) != time.Minute {
		t.Error("Left")
	}
}

// The token of a session depends on the session and on the credential.
func TestSessionTokens(t *testing.T) {
	a, b := New("token a", now), New("token a", now)
	all := map[string]bool{a.Token(KeyOf("x")): true, b.Token(KeyOf("x")): true, a.Token(KeyOf("y")): true}
	if len(all) != 3 || strings.Contains(a.Seal(KeyOf("x"), now), a.Token(KeyOf("x"))) {
		t.Errorf("SAFE-20 %v", all)
	}
	cookie := a.Seal(KeyOf("x"), now.Add(time.Minute))
	if again, key := Open(cookie, func(string) (Key, bool) { return KeyOf("x"), true }, now, false); again.Token(key) != a.Token(KeyOf("x")) {
		t.Error("SAFE-20 another token after the next seal")
	}
}

// A text that is sealed for one purpose is not valid for another one.
func TestSealsHaveOnePurpose(t *testing.T) {
	key := KeyOf("secret")
	text := Sealed(key, "transaction", []byte("content"))
	if got, ok := Opened(key, "transaction", text); !ok || string(got) != "content" {
		t.Errorf("SAFE-20 %q %t", got, ok)
	}
	if _, ok := Opened(key, "session", text); ok {
		t.Error("SAFE-20 a transaction is a session")
	}
	s := New("token a", now)
	if _, ok := Opened(key, "session", encode([]byte(s.ID))+"."+s.Token(key)); ok {
		t.Error("SAFE-20 the token of a session is a seal")
	}
}
