package admin

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

// waitTime is the maximum wait of each server in a request to several servers. The caller repeats the
// request.
const waitTime = 600 * time.Millisecond

// storedNumber parses a revision of the store, such as r412. The result is 0 if text is invalid.
func storedNumber(text string) uint64 {
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "r"), 10, 63)
	if err != nil {
		return 0
	}
	return n
}

// stored returns the value of a parameter for a revision of the store; 0 if absent.
func (q *query) stored(name string) uint64 {
	v := q.values.Get(name)
	n := storedNumber(v)
	if v != "" && n == 0 {
		q.fail(name, "must be a revision of the store, such as r412", "")
	}
	return n
}

// waitOfAll asks all servers, and limits the wait of each server to waitTime. It answers whether the
// clients of all servers have accepted a revision of the store.
func (s *Server) waitOfAll(w http.ResponseWriter, r *http.Request) error {
	a, timeout, err := s.waiter(queryOf(r), maxWait)
	if err != nil {
		return err
	}
	if a.revision > 0 {
		return wrong("revision", "is a number of one server; together with the parameter \"replicas\", use \"stored\" instead", "")
	}
	sum, err := s.waitedByAll(r, a, min(timeout, waitTime))
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, sum)
	return nil
}

// waitedByAll asks all servers. r is the request for the other servers, without a timeout.
func (s *Server) waitedByAll(r *http.Request, a *waiting, timeout time.Duration) (sum api.WaitResult, err error) {
	set := func(query url.Values) { query.Set("timeout", timeout.String()) }
	selects := a.asked.Node != nil || a.asked.Group != "" || a.asked.Type != nil
	all, err := s.survey(r, &s.waiters, statusSize, set, func(me *api.Replica) error {
		sum = s.waited(r, a, timeout)
		sum.Done = arrived(&sum)
		me.Served, me.Clients = sum.Served, new(sane(sum.Clients))
		return nil
	}, func(of *api.Replica, body []byte) error { return addWaited(&sum, of, body) })
	if err == nil && r.Context().Err() != nil {
		err = errEnding
	}
	for _, x := range all.replicas {
		sum.Done = sum.Done && x.Error == ""
	}
	sum.Done = sum.Done && all.unsure == "" && (!selects || sum.Clients.Connected > 0)
	sum.Replicas, sum.Unsure = all.replicas, all.unsure
	return sum, err
}

// arrived reports whether the clients of a server are done, or the server serves the revision whole and has no
// selected client.
func arrived(r *api.WaitResult) bool {
	return r.Done || r.Served && r.Clients.Connected+len(r.Loops)+len(r.Pending) == 0 && r.Removals == nil
}

// addWaited adds the result of another server. A nil body (404) is from a server without the group: that
// server does not serve the awaited revision.
func addWaited(sum *api.WaitResult, of *api.Replica, body []byte) error {
	of.Clients = new(sane(api.Counts{}))
	if body == nil {
		sum.Done = false
		return nil
	}
	var is api.WaitResult
	if err := json.Unmarshal(body, &is); err != nil || is.Kind != api.KindWaitResult {
		of.Clients = nil
		return errOther
	}
	of.Clients, of.Served = new(sane(is.Clients)), is.Served
	if is.StoreRevision != "" { // the answer is newer than the announcement
		of.Revision, of.StoreRevision = textutil.Head(is.StoreRevision, maxWords), textutil.Head(is.StoreRevision, maxWords)
	}
	sum.Uncommitted = sum.Uncommitted || is.Uncommitted
	sum.Done = sum.Done && arrived(&is)
	sum.Served = sum.Served && is.Served
	sum.Clients.Connected += of.Clients.Connected
	for state, n := range of.Clients.By {
		sum.Clients.By[state] += n
	}
	if is.Rejected != nil && sum.Rejected == nil {
		sum.Rejected = &api.Rejected{Group: textutil.Head(is.Rejected.Group, maxWords), Since: is.Rejected.Since, Errors: cutAll(is.Rejected.Errors, named)}
	}
	sum.Loops = few(append(sum.Loops, cutTroubles(is.Loops)...), maxTold)
	sum.Refusals = addRefusals(sum.Refusals, is.Refusals)
	sum.Pending = few(append(sum.Pending, cutAll(is.Pending, named)...), named)
	return nil
}
