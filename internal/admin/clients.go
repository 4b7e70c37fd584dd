package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	"github.com/chancery-xds/chancery/internal/text/jsonscan"
)

func (s *Server) clients(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	f := q.filter()
	if q.err != nil {
		return q.err
	}
	list, err := s.clientsNow(r.Context(), f)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, list)
	return nil
}

// clientsNow lists the clients of this server.
func (s *Server) clientsNow(ctx context.Context, f clients.Filter) (api.ClientList, error) {
	list := s.Tracker.Clients(f)
	if list.Total == 0 {
		if err := s.knownGroup(f.Group); err != nil {
			return list, err
		}
	}
	s.waits(ctx, list.Items)
	list.APIVersion, list.Kind, list.Items = api.Version, api.KindClientList, some(list.Items)
	return list, nil
}

func (s *Server) client(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	node := r.PathValue("node")
	all := s.Tracker.Client(node)
	if len(all) == 0 {
		return s.unknownNode(node)
	}
	answer(w, http.StatusOK, s.clientNow(r.Context(), node, all))
	return nil
}

// clientNow lists the clients of this server with a node ID.
func (s *Server) clientNow(ctx context.Context, node string, all []api.Client) api.ClientList {
	s.waits(ctx, all)
	s.blameIn(ctx, node, all)
	return api.ClientList{APIVersion: api.Version, Kind: api.KindClientList, Total: len(all), Items: some(all)}
}

// maxBlamed is the maximum number of resources or events in one answer for which the server searches the
// faulty resource.
const maxBlamed = 50

// blameResources sets the place and the reason of refused resources. It searches for at most blameTime.
func (s *Server) blameResources(ctx context.Context, node string, all []api.ClientResource) {
	ctx, cancel := context.WithTimeout(ctx, blameTime)
	defer cancel()
	left := maxBlamed
	for i := range all {
		r := &all[i]
		if r.State != api.Nacked || left == 0 {
			continue
		}
		left--
		s.faults(ctx, node, r.Type, r.Error, []*api.Resource{&r.Resource})
	}
}

// faults sets the place and the reason of those refused resources that Blame finds faulty.
func (s *Server) faults(ctx context.Context, node, typ, text string, all []*api.Resource) {
	refused := api.Refusal{Type: typ, Error: text, Nodes: []string{node}}
	for _, r := range all {
		refused.Resources = append(refused.Resources, *r)
	}
	for _, found := range s.blamed(ctx, []api.Refusal{refused})[0].Resources {
		for _, r := range all {
			if r.Name == found.Name && found.Reason != "" {
				r.Place, r.Reason = found.Place, found.Reason
			}
		}
	}
}

// maxWaits is the maximum number of clients in one answer whose streams are inspected for waiting types.
const maxWaits = 100

// waits sets the state of waiting types, and the resources that they wait for. It inspects streams for at
// most blameTime, and only those of unhealthy clients.
func (s *Server) waits(ctx context.Context, all []api.Client) {
	ctx, cancel := context.WithTimeout(ctx, blameTime)
	defer cancel()
	s.Explainer.Wait(ctx, all[:min(len(all), maxWaits)])
}

// blameIn adds the faulty resources with their places to the refusals of connected clients. The refusal of a client
// that left is about earlier content, which may have no place any more.
func (s *Server) blameIn(ctx context.Context, node string, all []api.Client) {
	for i := range all {
		for j := range all[i].Types {
			t := &all[i].Types[j]
			if t.Nacked == nil || all[i].Left != nil {
				continue
			}
			n := *t.Nacked
			n.Resources = s.blamed(ctx, []api.Refusal{{Type: t.Type, Error: n.Error, Nodes: []string{node}, Resources: n.Resources}})[0].Resources
			t.Nacked = &n
		}
	}
}

func (s *Server) unknownNode(node string) error {
	hint := ""
	for n := len(node); n > 0 && hint == ""; n = n * 2 / 3 { // try shorter and shorter beginnings of the ID
		if near := s.Tracker.Nodes(node[:n], 3); len(near) > 0 {
			hint = "did you mean " + strings.Join(near, " or ") + "?"
		}
	}
	if hint == "" {
		hint = "/api/v1/clients?all=1 lists those that are connected"
	}
	return missing("node", "no client with the node id "+quoted(node)+" is connected, or was lately", hint)
}

func (s *Server) clientResources(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	limit := q.limit(1000)
	if q.err != nil {
		return q.err
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	list, err := s.Explainer.ClientResources(ctx, r.PathValue("node"), r.PathValue("type"), r.PathValue("name"), limit)
	if err != nil {
		return asked(err)
	}
	s.blameResources(r.Context(), r.PathValue("node"), list.Items)
	list.APIVersion, list.Kind, list.Items = api.Version, api.KindClientResources, some(list.Items)
	answer(w, http.StatusOK, list)
	return nil
}

func (s *Server) explain(w http.ResponseWriter, r *http.Request) error {
	e, err := s.explainNow(r)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, e)
	return nil
}

// explainNow returns the explanation of this server.
func (s *Server) explainNow(r *http.Request) (e api.Explanation, err error) {
	q := queryOf(r)
	typ, name := q.text("type"), q.text("name")
	if name != "" && typ == "" {
		q.fail("type", "is needed with a name", "")
	}
	if q.err != nil {
		return e, q.err
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	e, err = s.Explainer.Explain(ctx, r.PathValue("node"), typ, name)
	if err != nil {
		return e, asked(err)
	}
	e.APIVersion, e.Kind, e.Links = api.Version, api.KindExplanation, some(e.Links)
	return e, nil
}

func (s *Server) node(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	n, err := s.Explainer.Node(r.PathValue("node"))
	if err != nil {
		return asked(err)
	}
	n.APIVersion, n.Kind, n.Groups = api.Version, api.KindNodeInfo, some(n.Groups)
	answer(w, http.StatusOK, n)
	return nil
}

// preview sends the groups and the resources of a node that the caller describes.
func (s *Server) preview(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	var in api.PreviewRequest
	if err := body(w, r, maxAsked, &in); err != nil {
		return err
	}
	if strings.TrimSpace(in.Node) == "" {
		return wrong("node", "is missing: write the node as JSON or YAML", `{"node": "id: edge-1"}`)
	}
	p, err := s.Explainer.Preview([]byte(in.Node))
	if err != nil {
		return wrong("node", err.Error(), "")
	}
	p.APIVersion, p.Kind = api.Version, api.KindPreview
	answer(w, http.StatusOK, p)
	return nil
}

// maxChecked is the maximum number of bytes of a checked text. The worst text of this size takes 2 s and 250 MB.
const maxChecked = 512 << 10

// mostChecked returns the maximum number of bytes of a checked text under a memory limit. The worst text then takes an
// eighth of the limit, and one check runs at a time over unix sockets, and one over the network (SAFE-14).
func mostChecked(limit int64) int { return int(min(maxChecked, limit>>12)) }

// check sends the findings about a text with resources, and their impact.
func (s *Server) check(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	in := api.CheckRequest{}
	if err := body(w, r, maxAsked, &in); err != nil {
		return err
	}
	if strings.TrimSpace(in.Text) == "" {
		return wrong("text", "is missing: write resources as YAML or JSON", "")
	}
	if most := mostChecked(debug.SetMemoryLimit(-1)); len(in.Text) > most {
		return wrong("text", fmt.Sprintf("more than %d bytes", most), "chancery check reads files of any size")
	}
	in.Group = cmp.Or(in.Group, groups.Default)
	if err := s.knownGroup(in.Group); err != nil {
		return err
	}
	out, plan := s.Explainer.Check(in.Group, []byte(in.Text))
	if out.Errors == 0 && len(plan) <= maxChanges {
		out.Impact = s.impactKnown(r.Context(), plan)
	}
	out.APIVersion, out.Kind = api.Version, api.KindCheck
	answer(w, http.StatusOK, out)
	return nil
}

// impactKnown returns the impact of changes that the server itself has listed; nil if it is unknown.
func (s *Server) impactKnown(ctx context.Context, plan []api.ImpactChange) *api.Impact {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	impact, err := s.impactOf(ctx, api.ImpactRequest{Changes: plan})
	if err != nil {
		return nil
	}
	return &impact
}

const (
	maxChanges = 10_000          // maximum number of planned changes in one request
	maxPlanned = 10 * maxChanges // maximum number of JSON values in it; without a limit, 4 MiB of changes take 80 MB
)

func (s *Server) impact(w http.ResponseWriter, r *http.Request) error {
	if q := queryOf(r); q.err != nil {
		return q.err
	}
	b, err := sent(w, r.Body, maxAsked)
	if err != nil {
		return err
	}
	if jsonscan.Values(b) > maxPlanned {
		return wrong("body", fmt.Sprintf("has more than %d values", maxPlanned), "")
	}
	var in api.ImpactRequest
	if err := object(b, maxAsked, &in); err != nil {
		return err
	}
	if len(in.Changes) > maxChanges {
		return wrong("changes", fmt.Sprintf("has %d changes: at most %d are allowed", len(in.Changes), maxChanges), "")
	}
	if err := s.checkChanges(in.Changes); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	out, err := s.impactOf(ctx, in)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, out)
	return nil
}

func (s *Server) impactOf(ctx context.Context, in api.ImpactRequest) (api.Impact, error) {
	out, err := s.Explainer.Impact(ctx, in)
	if err != nil {
		return out, asked(err)
	}
	out.APIVersion, out.Kind, out.Groups, out.Types = api.Version, api.KindImpact, some(out.Groups), some(out.Types)
	return out, nil
}

// checkChanges returns an error with the field of the first invalid change.
func (s *Server) checkChanges(all []api.ImpactChange) error {
	known := map[string]bool{"": true}
	for _, g := range s.Groups() {
		known[g.Name] = true
	}
	for i, c := range all {
		at := fmt.Sprintf("changes[%d].", i)
		switch {
		case c.Type == "":
			return wrong(at+"type", "a change needs its type", "such as CDS")
		case typeOf(c.Type) == nil:
			return missing(at+"type", "unknown type "+quoted(c.Type), typesHint())
		case c.Bytes < 0 || c.Bytes > math.MaxInt32:
			return wrong(at+"bytes", fmt.Sprintf("must be a number between 0 and %d", math.MaxInt32), "")
		case !known[c.Group]:
			p := s.unknownGroup(c.Group)
			p.field = at + "group"
			return p
		}
	}
	return nil
}

func (s *Server) resources(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	ask := ResourceQuery{Type: r.PathValue("type"), Name: r.PathValue("name"), Group: q.text("group"), Limit: q.limit(1000), Offset: q.offset(), Subscribers: q.flag("subscribers"), Places: q.values.Has("places") && q.flag("places")}
	if q.err != nil {
		return q.err
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	list, err := s.Explainer.Served(ctx, ask)
	if err != nil {
		return asked(err)
	}
	list.APIVersion, list.Kind, list.Items = api.Version, api.KindResourceList, some(list.Items)
	answer(w, http.StatusOK, list)
	return nil
}

const (
	maxGraph    = 1000 // maximum number of resources in a graph of references; a larger graph is unreadable
	maxDistance = 20
)

func (s *Server) references(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	ask := ReferenceQuery{
		Type: r.PathValue("type"), Name: r.PathValue("name"), Group: q.text("group"), Subscribers: q.flag("subscribers"),
		Limit: cmp.Or(int(q.number("limit", maxGraph)), 200), Depth: cmp.Or(int(q.number("depth", maxDistance)), 10),
	}
	if q.err != nil {
		return q.err
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	g, err := s.Explainer.References(ctx, ask)
	if err != nil {
		return asked(err)
	}
	g.APIVersion, g.Kind, g.Groups, g.Nodes, g.Edges = api.Version, api.KindReferenceGraph, some(g.Groups), some(g.Nodes), some(g.Edges)
	answer(w, http.StatusOK, g)
	return nil
}

// Timeouts for inspecting streams.
const (
	askTime   = 5 * time.Second
	blameTime = time.Second // for the search of faulty resources, which is less important
)

// asked converts the error of an Explainer or a stream to a problem.
func asked(err error) error {
	if e, ok := errors.AsType[*NotFound](err); ok {
		return missing(e.Field, e.Message, e.Hint)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &problem{http.StatusGatewayTimeout, "", fmt.Sprintf("the stream of the client did not answer within %v", askTime), ""}
	}
	if errors.Is(err, context.Canceled) {
		return errEnding
	}
	return err
}

var errEnding = &problem{http.StatusServiceUnavailable, "", "the server is ending", ""}

// some replaces nil by an empty list, which JSON writes as [].
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
