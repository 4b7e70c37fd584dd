package admin

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// levels has the log levels by name.
var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

func (s *Server) level(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	if s.Level == nil {
		return errNoLevel
	}
	s.answerLevel(w)
	return nil
}

// errNoLevel is the error for the log level of a program that does not let the API change it.
var errNoLevel = missing("", "the log level of this server cannot be read or set here", "")

func (s *Server) answerLevel(w http.ResponseWriter) {
	answer(w, http.StatusOK, api.LogLevel{APIVersion: api.Version, Kind: api.KindLogLevel, Level: strings.ToLower(s.Level.Level().String())})
}

func (s *Server) setLevel(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	if s.Level == nil {
		return errNoLevel
	}
	var in api.LogLevel
	if err := body(w, r, maxBody, &in); err != nil {
		return err
	}
	level, ok := levels[in.Level]
	if !ok {
		return wrong("level", "must be debug, info, warn or error", "")
	}
	if was := s.Level.Level(); was != level {
		// Write the log line at the lower level, so that the change itself is in the log.
		s.Level.Set(min(was, level))
		s.log().Log(r.Context(), max(min(was, level), slog.LevelInfo), "log level changed", "from", was.String(), "to", level.String(), "by", callerOf(r.Context()).name, "peer", sender(r))
		s.Level.Set(level)
		s.did(r, "log level "+in.Level)
	}
	s.answerLevel(w)
	return nil
}

// reloadTime is the time for a load before the answer of a reload is written.
const reloadTime = 10 * time.Minute

func (s *Server) reload(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	var in api.ReloadRequest
	if err := body(w, r, maxBody, &in); err != nil {
		return err
	}
	if in.AllowMassDelete && !s.proven(r) {
		return &problem{http.StatusForbidden, "allow_mass_delete", "needs a unix socket, a token or a client certificate",
			"run chancery reload --allow-mass-delete on the machine and as the user of the server; or --admin-listen unix:///PATH, --admin-token-file, --admin-client-ca"}
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(reloadTime + writeTime)) // not all writers support a deadline
	s.log().Info("reload requested through the admin API", "allow_mass_delete", in.AllowMassDelete, "by", callerOf(r.Context()).name, "peer", sender(r))
	s.did(r, "reload")
	out := s.Reload(r.Context(), in.AllowMassDelete)
	if r.Context().Err() != nil { // the caller has disconnected, or the server ends
		return errEnding
	}
	out.APIVersion, out.Kind = api.Version, api.KindReload
	answer(w, http.StatusOK, out)
	return nil
}

// proven reports whether the caller has proved its identity by a unix socket, a token or a client
// certificate. A connection to a TCP port of this machine proves nothing.
func (s *Server) proven(r *http.Request) bool {
	return callerOf(r.Context()).proven
}

func sender(r *http.Request) string {
	if slices.Contains([]string{"", "@"}, r.RemoteAddr) {
		return "unix"
	}
	return r.RemoteAddr
}
