package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/panics"
	textutil "github.com/chancery-xds/chancery/internal/text"
)

// Limits for the answers of other servers. Other servers are not trusted: a wrong answer must affect
// only the clients of its sender.
const (
	maxSpread  = 4        // maximum number of answers about all servers that are built at the same time
	statusSize = 1 << 20  // maximum bytes of a status
	listSize   = 8 << 20  // maximum bytes of a list of clients
	listItems  = 3000     // maximum number of clients in such a list, about as many as listSize allows
	clientSize = 64 << 10 // maximum bytes of one client
	maxTold    = 100      // maximum number of refusals, of troubles and of similar entries in an answer
	maxWords   = 2 << 10  // maximum bytes of a text
	maxCounted = 10_000_000
)

// errOther is the error for an unreadable answer of another server.
var errOther = errors.New("its answer cannot be read: another version, or not a Chancery")

// spread returns a handler that calls all for requests with ?replicas, and f for other requests. A
// request to another server has no ?replicas, so that server does not ask others.
func (s *Server) spread(f, all func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		q := queryOf(r)
		replicas := q.flag(paramAll.name)
		switch {
		case q.err != nil:
			return q.err
		case !replicas || s.Replicas == nil:
			return f(w, r)
		}
		done, err := s.hold(r)
		if err != nil {
			return err
		}
		defer done()
		leave, err := s.spreading.wait(r)
		if err != nil {
			return err
		}
		defer leave()
		return all(w, r)
	}
}

// A survey has the servers of a store, and the reason why the list may be incomplete.
type survey struct {
	replicas []api.Replica
	unsure   string
}

// survey asks the other servers and this server. The function set changes the query for the other
// servers; nil: no change. The function here answers for this server; one door of d is held while it
// runs. The function read gets each answer of another server, after here has returned.
func (s *Server) survey(r *http.Request, d *doors, size int64, set func(url.Values), here func(me *api.Replica) error, read func(of *api.Replica, body []byte) error) (survey, error) {
	query := r.URL.Query()
	query.Del(paramAll.name)
	query.Del(paramPace.name) // this server waits for it
	if set != nil {
		set(query)
	}
	me := api.Replica{ID: s.About.ID, Host: s.About.Host, Version: s.About.Version, Since: s.About.Since, Asked: true}
	served(&me, new(s.Config()))
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	known := make(chan struct{}) // closed when here has returned
	var failed error
	var of survey
	var asking sync.WaitGroup
	asking.Go(func() {
		var unsure error
		of.replicas, unsure = s.Replicas.Ask(ctx, r.URL.EscapedPath(), query, size, func(x *api.Replica, body []byte) {
			<-known
			if failed != nil {
				return
			}
			err := errOther
			if p := panics.Do(func() { err = read(x, body) }); p != nil {
				p.Log(s.log(), "admin API, of what another server says")
			}
			if err != nil {
				x.Error = err.Error()
			}
		})
		if unsure != nil {
			of.unsure = unsure.Error()
		}
	})
	func() {
		defer close(known)
		failed = errOther // the result if here panics
		leave, err := d.wait(r)
		if err == nil {
			defer leave()
			err = here(&me)
		}
		failed = err
		if err != nil {
			cancel()
		}
	}()
	asking.Wait()
	of.replicas = slices.Insert(of.replicas, 0, me)
	return of, failed
}

// served sets the fields of a replica that come from its configuration.
func served(of *api.Replica, c *api.Config) {
	if c.Store != nil {
		of.Revision, of.Trouble = textutil.Head(c.Store.Revision, maxWords), textutil.Head(c.Store.Error, maxWords)
		of.StoreRevision = of.Revision
		if w := c.Store.Writer; w != nil {
			of.Unwritten = textutil.Head(w.Error, maxWords)
		}
	}
	if c.Rejected != nil {
		r := *c.Rejected
		r.Errors = cutAll(r.Errors, 5)
		of.Rejected = &r
	}
}

func (s *Server) statusOfAll(w http.ResponseWriter, r *http.Request) error {
	f := clients.Filter{Group: queryOf(r).text("group")}
	if err := s.knownGroup(f.Group); err != nil {
		return err
	}
	var st api.Status
	all, err := s.survey(r, &s.making, statusSize, nil, func(me *api.Replica) error {
		st = s.statusNow(r.Context(), f)
		me.Clients = new(sane(st.Clients))
		return nil
	}, func(of *api.Replica, body []byte) error { return addStatus(&st, f.Group, of, body) })
	if err != nil {
		return err
	}
	slices.SortStableFunc(st.Refusals, func(a, b api.Refusal) int { return cmp.Compare(b.Clients, a.Clients) })
	slices.SortStableFunc(st.TurnedAway, func(a, b api.TurnedAway) int { return b.At.Compare(a.At) })
	st.Refusals, st.Troubles, st.TurnedAway = few(st.Refusals, maxTold), few(st.Troubles, maxTold), few(st.TurnedAway, maxTold)
	st.Replicas, st.Unsure = all.replicas, all.unsure
	st.Healthy = new(healthy(&st))
	answer(w, http.StatusOK, st)
	return nil
}

// addStatus adds the status of another server. A nil body (404) is valid only with a group: then the
// server does not have the group, and so no clients of the group.
func addStatus(st *api.Status, group string, of *api.Replica, body []byte) error {
	if body == nil {
		if group == "" {
			return errOther
		}
		of.Clients = new(sane(api.Counts{}))
		return nil
	}
	var is api.Status
	if err := json.Unmarshal(body, &is); err != nil || is.Kind != api.KindStatus {
		return errOther
	}
	of.Clients = new(sane(is.Clients))
	served(of, &is.Config)
	st.Clients.Connected += of.Clients.Connected
	for state, n := range of.Clients.By {
		st.Clients.By[state] += n
	}
	st.Refusals = addRefusals(st.Refusals, is.Refusals)
	st.Config.Earlier = addEarlier(st.Config.Earlier, is.Config.Earlier)
	st.Troubles = append(st.Troubles, cutTroubles(is.Troubles)...)
	for _, x := range few(is.TurnedAway, maxTold) {
		st.TurnedAway = append(st.TurnedAway, api.TurnedAway{Kind: textutil.Head(x.Kind, maxWords), Node: textutil.Head(x.Node, maxWords), From: textutil.Head(x.From, maxWords), Text: textutil.Head(x.Text, maxWords), Times: x.Times, Since: x.Since, At: x.At})
	}
	return nil
}

// cutTroubles returns the troubles of another server's answer, cut to a limited size.
func cutTroubles(all []api.Trouble) (cut []api.Trouble) {
	for _, x := range few(all, maxTold) {
		cut = append(cut, api.Trouble{Code: textutil.Head(x.Code, maxWords), Node: textutil.Head(x.Node, maxWords), Type: textutil.Head(x.Type, maxWords), Since: x.Since, Text: textutil.Head(x.Text, maxWords)})
	}
	return cut
}

// addEarlier adds the earlier versions that clients of another server run on (HEAL-3).
func addEarlier(all, more []api.Earlier) []api.Earlier {
	for _, e := range few(more, maxTold) {
		n := counted(e.Clients)
		e = api.Earlier{Type: textutil.Head(e.Type, maxWords), Name: textutil.Head(e.Name, maxWords),
			Refused: textutil.Head(e.Refused, maxWords), RefusedSince: textutil.Head(e.RefusedSince, maxWords),
			Served: textutil.Head(e.Served, maxWords), ServedSince: textutil.Head(e.ServedSince, maxWords)}
		i := slices.IndexFunc(all, func(x api.Earlier) bool { x.Clients = 0; return x == e })
		switch {
		case i >= 0:
			all[i].Clients += n
		case len(all) < maxTold:
			e.Clients = n
			all = append(all, e)
		}
	}
	return all
}

// addRefusals merges the refusals of another server by type, error, and files of the resources.
func addRefusals(all, more []api.Refusal) []api.Refusal {
	for _, r := range few(more, maxTold) {
		all = addRefusal(all, r)
	}
	return all
}

func addRefusal(all []api.Refusal, r api.Refusal) []api.Refusal {
	r.Error, r.Type, r.Clients = textutil.Head(r.Error, maxWords), textutil.Head(r.Type, maxWords), counted(r.Clients)
	i := slices.IndexFunc(all, func(x api.Refusal) bool {
		return x.Type == r.Type && x.Error == r.Error && !otherFile(x.Resources, r.Resources)
	})
	if i < 0 {
		if len(all) < 10*maxTold {
			r.Nodes, r.Resources = cutAll(r.Nodes, named), cutResources(r.Resources)
			all = append(all, r)
		}
		return all
	}
	x := &all[i]
	x.Clients += r.Clients
	x.Nodes = few(slices.Concat(x.Nodes, cutAll(r.Nodes, named)), named)
	x.Partly = x.Partly || r.Partly
	if r.Since.Before(x.Since) {
		x.Since = r.Since
	}
	return all
}

// otherFile reports whether two lists have resources with one name from different files: those of two groups.
// The line may differ, because a server may not have found the field.
func otherFile(a, b []api.Resource) bool {
	file := func(place string) string { return strings.TrimRight(place, ":0123456789") }
	return slices.ContainsFunc(a, func(x api.Resource) bool {
		return slices.ContainsFunc(b, func(y api.Resource) bool { return x.Name == y.Name && file(x.Place) != file(y.Place) })
	})
}

func cutResources(all []api.Resource) []api.Resource {
	some := make([]api.Resource, 0, named)
	for _, r := range few(all, named) {
		some = append(some, api.Resource{Type: textutil.Head(r.Type, maxWords), Name: textutil.Head(r.Name, maxWords), Place: textutil.Head(r.Place, maxWords), Reason: textutil.Head(r.Reason, maxWords)})
	}
	return some
}

// sane returns the counts without unknown states and without negative numbers.
func sane(c api.Counts) api.Counts {
	is := api.Counts{Connected: counted(c.Connected), By: map[api.State]int{}}
	for _, state := range states {
		if n := counted(c.By[state]); n > 0 {
			is.By[state] = n
		}
	}
	return is
}

func counted(n int) int { return min(max(n, 0), maxCounted) }

func few[T any](all []T, most int) []T { return all[:min(len(all), most)] }

func cutAll(all []string, most int) []string {
	some := make([]string, 0, most)
	for _, s := range few(all, most) {
		some = append(some, textutil.Head(s, maxWords))
	}
	return some
}

func (s *Server) clientsOfAll(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	f := q.filter()
	if f.Limit+f.Offset > listItems && f.Offset > 0 {
		q.fail(paramOffset.name, fmt.Sprintf("with limit more than %d, the most that one server lists for another", listItems), "select fewer clients, such as those of a group")
	}
	if q.err != nil {
		return q.err
	}
	from := f.Offset // each server lists the skipped clients, too: only all lists together have the order
	f.Limit, f.Offset = f.Limit+from, 0
	return s.listOfAll(w, r, from, f.Limit, func() (api.ClientList, error) { return s.clientsNow(r.Context(), f) })
}

func (s *Server) clientOfAll(w http.ResponseWriter, r *http.Request) error {
	node := r.PathValue("node")
	return s.listOfAll(w, r, 0, 0, func() (api.ClientList, error) {
		return s.clientNow(r.Context(), node, s.Tracker.Client(node)), nil
	})
}

// listOfAll answers with the clients of all servers from index from on, worst first. If most is not 0, it is the
// maximum number of clients, with the skipped ones.
func (s *Server) listOfAll(w http.ResponseWriter, r *http.Request, from, most int, here func() (api.ClientList, error)) error {
	var list api.ClientList
	var set func(url.Values)
	if most > 0 {
		set = func(query url.Values) {
			query.Set(paramLimit.name, strconv.Itoa(min(most, listItems)))
			query.Del(paramOffset.name)
		}
	}
	all, err := s.survey(r, &s.heavy, listSize, set, func(me *api.Replica) (err error) {
		list, err = here()
		for i := range list.Items {
			list.Items[i].Replica = me.ID
		}
		return err
	}, func(of *api.Replica, body []byte) error { return addClients(&list, of, body) })
	if err != nil {
		return err
	}
	silent := func(r api.Replica) bool { return r.Error != "" } // a server that did not answer may have the node
	if most == 0 && len(list.Items) == 0 && all.unsure == "" && !slices.ContainsFunc(all.replicas, silent) {
		return s.unknownNode(r.PathValue("node"))
	}
	slices.SortStableFunc(list.Items, func(a, b api.Client) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Node, b.Node))
	})
	if most > 0 {
		list.Items = few(list.Items, most)
	}
	list.Items = list.Items[min(from, len(list.Items)):]
	list.Replicas, list.Unsure = all.replicas, all.unsure
	answer(w, http.StatusOK, list)
	return nil
}

// rank orders clients, worst first. Disconnected clients are last.
func rank(c api.Client) int {
	if c.Left != nil {
		return len(states)
	}
	return slices.Index(states, c.State)
}

// addClients adds the clients of another server to a list. It decodes one client at a time, because a
// few bytes of JSON may need much memory.
func addClients(list *api.ClientList, of *api.Replica, body []byte) error {
	if body == nil { // the server does not have the node or the group
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errOther
	}
	var all []api.Client
	total, hidden := 0, 0
	for d.More() {
		name, err := d.Token()
		switch {
		case err != nil:
			return errOther
		case name == "total":
			err = d.Decode(&total)
		case name == "hidden":
			err = d.Decode(&hidden)
		case name == "items":
			all, err = readClients(d, of.ID)
		default:
			var skipped json.RawMessage
			err = d.Decode(&skipped)
		}
		if err != nil {
			return errOther
		}
	}
	list.Items = append(list.Items, all...)
	list.Total, list.Hidden = list.Total+counted(total), list.Hidden+counted(hidden)
	return nil
}

func readClients(d *json.Decoder, replica string) (all []api.Client, err error) {
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, errOther
	}
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		var c api.Client
		if len(raw) > clientSize || len(all) == listItems || json.Unmarshal(raw, &c) != nil || len(c.Types) > 2*maxTold {
			return nil, errOther
		}
		c.Replica = replica
		all = append(all, c)
	}
	_, err = d.Token()
	return all, err
}
