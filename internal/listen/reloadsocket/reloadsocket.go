// Package reloadsocket lets an operator on the same machine make a running server reload its files.
// The server listens on a unix socket in its state folder, which only the user of the server can open.
package reloadsocket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// name is the file name of the socket in the folder.
const name = "control"

// A Reload is the result of a reload.
type Reload struct {
	Files     int      `json:"files"`
	Resources int      `json:"resources"`
	Set       int      `json:"set"`
	Removed   int      `json:"removed"`
	Held      int      `json:"held"`             // missing from the files, and served until a later look confirms the removal
	Errors    []string `json:"errors,omitempty"` // why nothing was loaded

	Groups     int      `json:"groups,omitempty"`
	KeptGroups int      `json:"kept_groups,omitempty"` // rejected groups, which keep their previous configuration
	Kept       []string `json:"kept,omitempty"`        // the errors of these groups

	PID int `json:"pid,omitempty"` // of the process that loaded; 0: unknown. Serve sets it
}

// A Handler executes the requests.
type Handler interface {
	// Reload loads the files; approve allows all removals.
	Reload(ctx context.Context, approve bool) Reload
}

// Serve listens in a folder until ctx is done. No other process may serve there at the same time.
func Serve(ctx context.Context, folder string, h Handler, log *slog.Logger) error {
	path := filepath.Join(folder, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // a killed process may have left it
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /reload", func(w http.ResponseWriter, r *http.Request) {
		approve, err := strconv.ParseBool(r.URL.Query().Get("approve"))
		if err != nil {
			http.Error(w, "approve: must be true or false", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		did := h.Reload(r.Context(), approve)
		did.PID = os.Getpid()
		_ = json.NewEncoder(w).Encode(did) // fails if the client has gone
	})
	s := &http.Server{
		Handler: mux, ReadTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ErrNobody means that no server listens in a folder.
var ErrNobody = errors.New("no server is running")

// Ask makes the server of a folder reload.
func Ask(ctx context.Context, folder string, approve bool) (Reload, error) {
	path := filepath.Join(folder, name)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	q := url.Values{"approve": {strconv.FormatBool(approve)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://chancery/reload?"+q.Encode(), nil)
	if err != nil {
		return Reload{}, err
	}
	resp, err := c.Do(req)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			return Reload{}, ErrNobody
		}
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return Reload{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Reload{}, fmt.Errorf("the server answers %s", resp.Status)
	}
	var r Reload
	return r, json.NewDecoder(resp.Body).Decode(&r)
}
