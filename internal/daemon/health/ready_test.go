package health

import (
	"strings"
	"testing"
)

// A startup probe gets 200 or 503 without a reason, and one address has a limit.
func TestClientReady(t *testing.T) {
	s := &Server{Ready: func(node, from string, strict bool) (bool, string) {
		return node == "a" && !strict || from == "10.0.0.7", "secret reason"
	}}
	h := s.Handler(public)
	for _, c := range []struct {
		query string
		code  int
		body  string
	}{
		{"node=a", 200, "ok"},
		{"node=a&strict=0", 200, "ok"},
		{"node=a&strict=1", 503, "not ready\n"},
		{"node=b", 503, "not ready\n"},
		{"", 400, ""},
		{"node=a&strict=x", 400, ""},
		{"node=a&strict", 503, "not ready\n"},
		{"node=a&stict=1", 400, "write /ready?node=ID or /ready?node=ID&strict=1, without other parameters\n"},
		{"node=a&node=b", 400, ""},
		{"node=a&strict=1&strict=0", 400, ""},
		{"node=" + strings.Repeat("a", 5000), 400, ""},
		{"node=a;strict=1", 400, ""},
	} {
		if code, body := ask(h, "GET", "/ready?"+c.query, "x", "10.0.0.1:1"); code != c.code || c.body != "" && body != c.body {
			t.Errorf("%s: %d %q, want %d %q", c.query, code, body, c.code, c.body)
		}
	}
	if code, _ := ask(h, "GET", "/ready?node=b", "x", "10.0.0.7:1"); code != 200 {
		t.Errorf("the address of the caller is not passed on: %d", code)
	}
	refused := 0
	for range 300 {
		if code, _ := ask(h, "GET", "/ready?node=a", "x", "10.0.0.2:1"); code == 429 {
			refused++
		}
	}
	if refused < 50 || refused > 150 {
		t.Errorf("%d of 300 requests are refused", refused)
	}
	if code, _ := ask(new(Server).Handler(public), "GET", "/ready?node=a", "x", "10.0.0.1:1"); code != 404 {
		t.Errorf("without clients: %d", code)
	}
}
