package health

import (
	"fmt"
	"net/http"
	"strings"
)

// A check is one condition of being ready.
type check struct {
	name string
	f    func() error
}

// Check adds a condition of being ready: f returns nil while it holds. Checks
// are told in the order in which they were added, all of them before the server
// serves. f is called by each request, by several goroutines, and must not wait.
// Anyone who can ask is shown the first line of its error.
func (s *Server) Check(name string, f func() error) { s.checks = append(s.checks, check{name, f}) }

// A note is told to who asks for it, whether or not the server is ready.
type note struct {
	name string
	f    func() string
}

// Note adds a line of what is to be known besides, with ?verbose. The rules of
// [Server.Check] hold for f.
func (s *Server) Note(name string, f func() string) { s.notes = append(s.notes, note{name, f}) }

// maxReason is how much of an error is shown.
const maxReason = 200

// readyz answers as the servers of Kubernetes do: "ok", or a line for each check
// if one fails or with ?verbose.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	var lines strings.Builder
	ready := true
	for _, c := range s.checks {
		if err := c.f(); err != nil {
			ready = false
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", c.name, reason(err))
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
	}
	for _, n := range s.notes {
		fmt.Fprintf(&lines, "[i]%s: %s\n", n.name, n.f())
	}
	switch {
	case !ready:
		answer(w, http.StatusServiceUnavailable, lines.String()+"readyz check failed\n")
	case r.URL.Query().Has("verbose"):
		answer(w, http.StatusOK, lines.String()+"readyz check passed\n")
	default:
		answer(w, http.StatusOK, "ok")
	}
}

func healthz(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") }

func answer(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	fmt.Fprint(w, text)
}

// reason is an error on one line.
func reason(err error) string {
	line, _, more := strings.Cut(err.Error(), "\n")
	if len(line) > maxReason {
		line, more = strings.ToValidUTF8(line[:maxReason], ""), true
	}
	if more {
		line += " …"
	}
	return line
}
