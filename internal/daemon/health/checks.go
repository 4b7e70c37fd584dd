package health

import (
	"fmt"
	"net/http"
	"strings"
)

// A check is one condition of readiness.
type check struct {
	name string
	f    func() error
}

// Check adds a condition of readiness: f returns nil while it holds. Answers list the checks in the
// order of the calls. All calls come before [Server.Serve]. Each request calls f, so several
// goroutines may call it, and it must not block. The answer shows the first line of f's error to
// every client.
func (s *Server) Check(name string, f func() error) { s.checks = append(s.checks, check{name, f}) }

// A note is a line of information that does not affect readiness.
type note struct {
	name string
	f    func() string
}

// Note adds a line of information to answers that list the checks, for example with ?verbose. The rules of
// [Server.Check] hold for f.
func (s *Server) Note(name string, f func() string) { s.notes = append(s.notes, note{name, f}) }

// maxReason is the maximum length of a shown error, in bytes.
const maxReason = 200

// readyz answers in the format of Kubernetes: "ok", or a line for each check if one fails or with ?verbose.
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

// reason returns an error as one short line.
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
