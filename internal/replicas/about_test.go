package replicas

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

// What is announced is believed of nobody but who is announced under its key, if it is as long as it may be.
func TestParse(t *testing.T) {
	for value, good := range map[string]bool{
		`{"format":1,"id":"a"}`: true, `{"format":1,"id":"b"}`: false, `{"format":2,"id":"a"}`: false,
		`{"format":1,"id":"a","host":"` + strings.Repeat("x", maxAbout) + `"}`: false,
	} {
		if a, err := parse(prefix+"a", []byte(value)); (err == nil) != good || a.ID != "a" || a.Streams != 0 {
			t.Errorf("%.60s: %+v, %v", value, a, err)
		}
	}
	if err := (About{Admin: "http://127.0.0.1:1"}).reachable(""); err == nil {
		t.Error("the loopback of a machine without a name is asked")
	}
}

// A trip answers nothing.
type trip func(*http.Request)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { f(r); return nil, errors.New("no") }

// The token is sent over TLS only, and only to who has a certificate of a CA that was named: any other has one of some public CA.
func TestToken(t *testing.T) {
	for admin, want := range map[string]string{"https://10.0.0.1:1": "Bearer secret", "http://127.0.0.1:1": ""} {
		for _, named := range []bool{true, false} {
			got := "not asked"
			c := client{&http.Client{Transport: trip(func(r *http.Request) { got = r.Header.Get("Authorization") })}, func() (string, error) { return "secret", nil }, named}
			want := want
			if want != "" && !named {
				want = "not asked"
			}
			if _, err := c.get(t.Context(), "a", admin, "/x", nil, 10); err == nil || got != want {
				t.Errorf("%s, %t: %q, want %q; %v", admin, named, got, want, err)
			}
		}
	}
}
