package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/faults"
	"github.com/chancery-xds/chancery/internal/text"
)

// maxRejected is the maximum number of rejected groups in an answer.
const maxRejected = 100

func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	f := clients.Filter{Group: q.text("group")}
	if q.err != nil {
		return q.err
	}
	if err := s.knownGroup(f.Group); err != nil {
		return err
	}
	answer(w, http.StatusOK, s.statusNow(r.Context(), f))
	return nil
}

// statusNow returns the status of this server.
func (s *Server) statusNow(ctx context.Context, f clients.Filter) api.Status {
	st := api.Status{APIVersion: api.Version, Kind: api.KindStatus, Server: s.About, Config: s.Config(), TurnedAway: some(s.Tracker.TurnedAway(""))}
	st.Clients, st.Refusals, st.Troubles = s.Tracker.SummaryOf(f)
	st.Clients = counts(st.Clients)
	st.Refusals, st.Troubles = s.blamed(ctx, st.Refusals), some(few(slices.Concat(s.staleEndpoints(), s.otherTroubles(), st.Troubles), maxTold))
	for _, g := range s.Groups() {
		if g.Rejected != nil && (f.Group == "" || f.Group == g.Name) && len(st.RejectedGroups) < maxRejected {
			st.RejectedGroups = append(st.RejectedGroups, *g.Rejected)
		}
	}
	st.Emptied = s.emptied(f.Group)
	st.Healthy = new(healthy(&st))
	return st
}

// Troubles returns faults as troubles with a code.
func Troubles(code string, faults []faults.Fault) (all []api.Trouble) {
	for _, is := range faults {
		all = append(all, api.Trouble{Code: code, Since: is.Since, Text: text.Head(is.Text, maxWords)})
	}
	return all
}

// emptied lists clusters whose registered endpoints are all gone: the server sends none, also if files have
// some.
func (s *Server) emptied(group string) (all []api.EndpointsCluster) {
	if s.Endpoints == nil {
		return nil
	}
	for _, x := range s.Endpoints.List(group, "") {
		if x.Total == 0 && len(all) < maxTold {
			all = append(all, api.EndpointsCluster{Cluster: x.Name, Group: x.Group})
		}
	}
	return all
}

// healthy reports whether nothing in a status is wrong. A relay that cannot reach the upstream serves older
// resources, like a server after a rejected load; an idle one does not need the upstream. A client in a disconnect loop
// does not get a response that it was sent. Registered endpoints that cannot be updated, stored or read may be old, also
// after a restart. A state that is not stored may be old after a restart, too.
func healthy(st *api.Status) bool {
	by, c := st.Clients.By, st.Config
	upstream := c.Upstream == nil || (c.Upstream.Connected || c.Upstream.Idle) && c.Upstream.Refused == 0 && c.Upstream.Exceeded == ""
	revision := c.Store == nil || c.Store.Error == "" && (c.Store.Writer == nil || c.Store.Writer.Error == "") && len(c.Store.RolledBack) == 0
	fails := func(r api.Replica) bool {
		return r.Error != "" || r.Rejected != nil || r.Trouble != "" || r.Unwritten != ""
	}
	fault := func(x api.Trouble) bool {
		return x.Code == api.DisconnectLoop || x.Code == api.StaleEndpoints || x.Code == api.NotStored || x.Code == api.RejectedRoles || x.Code == api.RejectedTLS
	}
	return by[api.Nacked]+by[api.Stale] == 0 && !slices.ContainsFunc(st.Troubles, fault) && c.Rejected == nil && len(st.RejectedGroups) == 0 && c.Dangling == 0 &&
		upstream && revision && st.Unsure == "" && !slices.ContainsFunc(st.Replicas, fails)
}

// knownGroup returns an error if the group does not exist. The name "" means all groups.
func (s *Server) knownGroup(name string) error {
	if name == "" || slices.ContainsFunc(s.Groups(), func(g api.Group) bool { return g.Name == name }) {
		return nil
	}
	return s.unknownGroup(name)
}

// unknownGroup returns an error that lists the groups.
func (s *Server) unknownGroup(name string) *problem {
	var names []string
	for _, g := range s.Groups() {
		names = append(names, g.Name)
	}
	hint := fmt.Sprintf("the groups are %s", strings.Join(names[:min(len(names), 5)], ", "))
	if more := len(names) - 5; more > 0 {
		hint += fmt.Sprintf(" and %d more", more)
	}
	return &problem{http.StatusNotFound, "group", "no group has the name " + quoted(name), hint}
}

// counts replaces a nil map by an empty one, so that the JSON is {} and not null.
func counts(c api.Counts) api.Counts {
	if c.By == nil {
		c.By = map[api.State]int{}
	}
	return c
}

// blamed adds the faulty resources to refusals. It searches for at most blameTime.
func (s *Server) blamed(ctx context.Context, all []api.Refusal) []api.Refusal {
	if len(all) == 0 {
		return []api.Refusal{}
	}
	ctx, cancel := context.WithTimeout(ctx, blameTime)
	defer cancel()
	return some(s.Explainer.Blame(ctx, all))
}

func (s *Server) refusals(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	answer(w, http.StatusOK, s.refusalsNow(r.Context()))
	return nil
}

// refusalsNow lists the refusals of the clients of this server.
func (s *Server) refusalsNow(ctx context.Context) api.RefusalList {
	_, all, _ := s.Tracker.SummaryOf(clients.Filter{})
	return api.RefusalList{APIVersion: api.Version, Kind: api.KindRefusalList, Items: s.blamed(ctx, all)}
}

func (s *Server) groups(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	answer(w, http.StatusOK, s.groupsNow())
	return nil
}

// groupsNow lists the groups with the clients of this server.
func (s *Server) groupsNow() api.GroupList {
	by := s.Tracker.GroupCounts()
	list := api.GroupList{APIVersion: api.Version, Kind: api.KindGroupList, Items: some(s.Groups())}
	for i, g := range list.Items {
		list.Items[i].Clients = counts(by[g.Name])
	}
	return list
}

// The largest numbers of elements in an answer about the fleet.
const (
	maxAgents       = 100
	maxLoads        = 20
	maxCertificates = 100
)

func (s *Server) fleet(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	answer(w, http.StatusOK, s.fleetNow())
	return nil
}

// fleetNow describes the clients of this server.
func (s *Server) fleetNow() api.Fleet {
	f := api.Fleet{APIVersion: api.Version, Kind: api.KindFleet, Certificates: some(s.Explainer.Certificates(maxCertificates))}
	f.Agents, f.Responses, f.Names = s.Tracker.Fleet(maxLoads)
	for _, a := range f.Agents {
		f.Connected += a.Clients.Connected
	}
	f.Agents, f.Responses, f.Names = some(few(f.Agents, maxAgents)), some(f.Responses), some(f.Names)
	return f
}

func (s *Server) version(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	answer(w, http.StatusOK, s.versionNow())
	return nil
}

// otherTroubles returns the signs of problems that the rest of the daemon reports.
func (s *Server) otherTroubles() []api.Trouble {
	if s.Troubles == nil {
		return nil
	}
	return s.Troubles()
}

// versionNow returns the version of the program, and its process.
func (s *Server) versionNow() api.VersionInfo {
	v := s.Version
	v.APIVersion, v.Kind, v.Server = api.Version, api.KindVersion, s.About
	return v
}
