package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

const (
	maxSynced  = 24 * time.Hour
	roundTime  = 100 * time.Millisecond // shortest interval of two rounds
	holdPoll   = 500 * time.Millisecond // interval of looks at the groups that are frozen
	existsTime = 2 * time.Second        // maximum duration of the request for the newest revision

	// settleTime is how long a group must be frozen without a rollout before the wait fails. A server
	// learns of a new rollout within this time.
	settleTime = 2 * time.Second
)

// waitSynced waits like wait, and decides the result for the caller. It answers with lines: the progress,
// and the result as the last line. It asks the other servers of the store, too, in rounds.
func (s *Server) waitSynced(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	local, least := q.flag("local"), q.number("min_clients", maxCounted)
	asked, timeout, err := s.waiter(q, maxSynced)
	if err != nil {
		return err
	}
	r, leave, err := s.waitingSynced.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	headers(w, linesOfJSON)
	w.WriteHeader(http.StatusOK)
	wait := syncedWait{s: s, r: r, asked: *asked, named: asked.stored, least: int(least), timeout: timeout, end: time.Now().Add(timeout), out: newWaitLines(w)}
	if of := s.Config().Store; !local && asked.revision == 0 && s.Replicas != nil && of != nil && (asked.stored > 0 || of.Revision != "") {
		wait.all = true
		if asked.stored == 0 {
			wait.asked.stored = storedNumber(of.Revision)
		}
	}
	if wait.out.send(api.WaitLine{}) != nil { // so that the caller knows that the wait has begun
		return nil
	}
	result, err := wait.run()
	switch {
	case errors.Is(context.Cause(r.Context()), errReplaced):
		result = verdict{api.WaitTimeout, "not synced: " + errReplaced.message, "repeat the command"}.of(result)
		err = nil
	case r.Context().Err() != nil || errors.Is(err, errEnding): // the caller has disconnected, or the server ends
		return nil
	}
	if err != nil {
		result = verdict{api.WaitFailed, "not synced: " + err.Error(), ""}.of(result)
	}
	_ = wait.out.send(api.WaitLine{Result: &result})
	return nil
}

// A syncedWait is the state of one request of /api/v1/wait/synced.
type syncedWait struct {
	s       *Server
	r       *http.Request
	asked   waiting // clients and revision; each round uses a copy
	named   uint64  // revision of the store that the caller has named; 0: none
	all     bool    // ask all servers of the store
	least   int     // minimum number of clients
	timeout time.Duration
	end     time.Time
	out     *waitLines
}

// run returns the result of the wait.
func (w *syncedWait) run() (r api.WaitResult, err error) {
	if v := w.unknownRevision(); v != nil {
		return v.of(r), nil
	}
	if w.asked.newest {
		if v := w.rejectedNewest(); v != nil {
			w.end = time.Now()
			r, err = w.round()
			if err == nil && r.Rejected != nil {
				*v = w.verdictOf(&r)
			}
			return v.of(r), nil
		}
	}
	for {
		v, _, err := w.thaw()
		if err != nil {
			return r, err
		}
		if v != nil {
			return v.of(r), nil
		}
		began := time.Now()
		next, err := w.round()
		over := time.Until(w.end) <= 0
		switch p, _ := errors.AsType[*problem](err); {
		case err == nil:
			r = next
		case over || p == nil || p.code != http.StatusServiceUnavailable: // 503: the server is busy
			return r, err
		}
		held := false
		if r.Done {
			v, held, err = w.thaw()
			if err != nil {
				return r, err
			}
			if v == nil && w.asked.newest { // the server may have rejected a load during the wait
				v = w.rejectedNewest()
			}
		}
		switch {
		case v != nil:
			return v.of(r), nil
		case !held && (r.Done || r.Rejected != nil || len(r.Refusals) > 0 || len(r.Loops) > 0 || over):
			return w.verdictOf(&r).of(r), nil
		}
		if err := w.pause(roundTime - time.Since(began)); err != nil {
			return r, err
		}
	}
}

// unknownRevision returns a verdict if the store has no revision, or not the named one. Then it is useless
// to wait. If the store does not answer, the result is nil.
func (w *syncedWait) unknownRevision() *verdict {
	if w.asked.revision > 0 || w.s.Revisions == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(w.r.Context(), existsTime)
	defer cancel()
	at, err := w.s.Revisions.Repo.Newest(ctx)
	switch {
	case err != nil:
	case at.Number == 0:
		return &verdict{api.WaitNotFound, "the store has no revision yet", "chancery apply commits one"}
	case w.named > uint64(at.Number):
		return &verdict{api.WaitNotFound, fmt.Sprintf("revision r%d: not found yet: the newest is %s", w.named, at.Number), ""}
	}
	return nil
}

// round looks once at the clients of all servers, or waits for those of this server. The wait is short
// enough to keep the connection open.
func (w *syncedWait) round() (r api.WaitResult, err error) {
	a := w.asked
	if rest := max(time.Until(w.end), 0); w.all {
		r, err = w.roundOfAll(&a, min(rest, waitTime))
	} else {
		r = w.s.waited(w.r, &a, min(rest, beat))
	}
	r.Done = r.Done && r.Clients.Connected >= w.least
	switch {
	case err != nil:
	case w.all:
		err = w.out.progress(progressOf(&r, a.stored))
	default:
		err = w.out.keepOpen()
	}
	return r, err
}

func (w *syncedWait) roundOfAll(a *waiting, timeout time.Duration) (r api.WaitResult, err error) {
	leave, err := w.s.spreading.wait(w.r)
	if err != nil {
		return r, err
	}
	defer leave()
	query := url.Values{"stored": {fmt.Sprintf("r%d", a.stored)}}
	for _, name := range []string{"node", "group", "type"} {
		if v := w.r.URL.Query().Get(name); v != "" {
			query.Set(name, v)
		}
	}
	return w.s.waitedByAll(w.questionTo("/api/v1/wait", query), a, timeout)
}

// questionTo returns the request for the other servers.
func (w *syncedWait) questionTo(path string, query url.Values) *http.Request {
	r := w.r.WithContext(w.r.Context())
	r.URL = &url.URL{Path: path, RawQuery: query.Encode()}
	return r
}

// rejectedNewest returns a verdict if a server of the store has rejected the newest configuration: the
// directory that it commits, or the newest revision. A directory without a store is not its business.
func (w *syncedWait) rejectedNewest() *verdict {
	now := w.s.Config()
	if now.Store == nil {
		return nil
	}
	me := api.Replica{ID: cmp.Or(w.s.About.ID, w.s.About.Replica)}
	served(&me, &now)
	all := []api.Replica{me}
	if w.all {
		if of, err := w.statusOfAll(); err == nil {
			all = of.replicas
		}
	}
	for _, x := range all {
		why := ""
		switch {
		case x.Error != "":
		case x.Unwritten != "":
			why = fmt.Sprintf("server %s does not commit its directory: %s", x.ID, x.Unwritten)
		case x.Rejected != nil:
			why = fmt.Sprintf("server %s serves %s, since it rejects the newest revision: %s", x.ID, cmp.Or(x.Revision, "nothing"), strings.Join(x.Rejected.Errors, "; "))
		}
		if why != "" {
			return &verdict{api.WaitFailed, "not synced: " + why, "chancery status shows details; --revision waits for the served revision instead"}
		}
	}
	return nil
}

// statusOfAll asks all servers for the state of their configuration.
func (w *syncedWait) statusOfAll() (survey, error) {
	leave, err := w.s.spreading.wait(w.r)
	if err != nil {
		return survey{}, err
	}
	defer leave()
	nothing := func(*api.Replica) error { return nil }
	return w.s.survey(w.questionTo("/api/v1/status", nil), &w.s.making, statusSize, nil, nothing, func(of *api.Replica, body []byte) error {
		return addStatus(&api.Status{Clients: counts(api.Counts{})}, "", of, body)
	})
}

// thaw waits for the end of rollouts that move groups to the named revision or a later one. If a group is
// then frozen at an earlier revision, it returns a verdict, because the clients of the group do not get
// the named revision. hasWaited reports whether it has waited; clients may then have got responses in the
// meantime.
func (w *syncedWait) thaw() (v *verdict, hasWaited bool, err error) {
	var frozen time.Time // when a group was first seen frozen without a rollout to the revision
	for {
		of := w.s.Config().Store
		if w.named == 0 || of == nil || storedNumber(of.Revision) < w.named { // the rounds report a revision that is not served yet
			return nil, hasWaited, nil
		}
		stays, goes := heldBefore(of, w.asked.asked.Group, w.named)
		over := time.Until(w.end) <= 0
		if len(stays) == 0 {
			frozen = time.Time{}
		} else if frozen.IsZero() {
			frozen = time.Now()
		}
		switch note := strings.Join(goes, "; "); {
		case len(stays) > 0 && (over || time.Since(frozen) >= settleTime):
			return w.frozen(stays), hasWaited, nil
		case len(stays) > 0:
		case note == "":
			return nil, hasWaited, nil
		case over:
			return &verdict{api.WaitTimeout, "not synced: " + note, "chancery rollout status shows what it waits for"}, hasWaited, nil
		default:
			err = w.out.note(note)
		}
		hasWaited = true
		if err == nil {
			err = w.pause(holdPoll)
		}
		if err != nil {
			return nil, hasWaited, err
		}
	}
}

// pause waits, at most until the end of the time.
func (w *syncedWait) pause(d time.Duration) error {
	t := time.NewTimer(min(d, time.Until(w.end)))
	defer t.Stop()
	select {
	case <-t.C:
		return w.out.keepOpen()
	case <-w.r.Context().Done():
		return errEnding
	}
}
