package admin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/chancery-xds/chancery/groups"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/roles"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/internal/text/jsonscan"
)

// mayRegister returns an error unless the caller may register endpoints. Registering an endpoint
// redirects traffic. So a local port is not enough: the caller needs a unix socket, a token or a client
// certificate.
// The role for the group of the endpoints is another check: see [Server.mayChangeCluster].
func (s *Server) mayRegister(r *http.Request) error {
	if s.Endpoints == nil {
		return &problem{http.StatusForbidden, "", "this server takes no endpoints", "chancery serve --endpoints"}
	}
	if !s.proven(r) {
		return &problem{http.StatusForbidden, "", "registering endpoints needs a unix socket, a token or a client certificate",
			"--admin-listen unix:///PATH, --admin-token-file or --admin-client-ca"}
	}
	return nil
}

// mayChangeCluster returns an error unless the caller has the rights to change the endpoints of a cluster.
func (s *Server) mayChangeCluster(c *caller, rights roles.Rights, of endpoints.Cluster) error {
	return s.mayWith(c, rights, roles.Commit, cmp.Or(of.Group, groups.Default))
}

// mayRegisterIn is mayRegister for one cluster.
func (s *Server) mayRegisterIn(r *http.Request, of endpoints.Cluster) error {
	if err := s.mayRegister(r); err != nil {
		return err
	}
	c := callerOf(r.Context())
	return s.mayChangeCluster(c, c.rights, of)
}

// clusterOf returns the cluster of a request.
func clusterOf(r *http.Request, q *query) endpoints.Cluster {
	return endpoints.Cluster{Group: q.text("group"), Name: r.PathValue("cluster")}
}

func (s *Server) putEndpoint(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	if q.err != nil {
		return q.err
	}
	if err := s.mayRegisterIn(r, clusterOf(r, q)); err != nil {
		return err
	}
	var in api.Endpoint
	if err := body(w, r, maxBody, &in); err != nil {
		return err
	}
	id := r.PathValue("id")
	if in.ID != "" && in.ID != id {
		return wrong("id", "must equal the ID in the path", "")
	}
	ttl, err := ttlOf("ttl", in.TTL)
	if err != nil {
		return err
	}
	e, err := registered(in)
	if err != nil {
		return s.registering(err, "")
	}
	e.ID = id
	res, err := s.Endpoints.Put(r.Context(), clusterOf(r, q), []endpoints.Registered{e}, ttl)
	return s.registers(w, r, res, err, "endpoints[0].")
}

// maxValues is the maximum number of JSON values in all endpoints of a cluster. In memory, a value takes
// up to 150 bytes.
const maxValues = 300_000

func (s *Server) putEndpoints(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	if q.err != nil {
		return q.err
	}
	if err := s.mayRegisterIn(r, clusterOf(r, q)); err != nil {
		return err
	}
	var in struct { // an [api.EndpointsRequest] whose endpoints are decoded one by one
		TTL       string            `json:"ttl"`
		Endpoints []json.RawMessage `json:"endpoints"`
	}
	b, err := sent(w, r.Body, maxAsked)
	if err != nil {
		return err
	}
	n := jsonscan.Values(b)
	if n > maxValues {
		return wrong("body", fmt.Sprintf("has more than %d values", maxValues), "")
	}
	leave, err := s.unpacks(r.Context(), n)
	if err != nil {
		return err
	}
	defer leave()
	if err := object(b, maxAsked, &in); err != nil {
		return err
	}
	if in.Endpoints == nil { // a missing body must not remove all endpoints
		return wrong("endpoints", "is missing", `[] removes all endpoints`)
	}
	ttl, err := ttlOf("ttl", in.TTL)
	if err != nil {
		return err
	}
	all := registeredAll(in.Endpoints, `must be empty: one TTL applies to all endpoints: {"ttl": "30s", "endpoints": […]}`)
	res, err := s.Endpoints.Replace(r.Context(), clusterOf(r, q), all, ttl)
	return s.registers(w, r, res, err, "")
}

func (s *Server) removeEndpoints(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	id, release := r.PathValue("id"), false
	if id == "" {
		release = q.flag("release")
	}
	if q.err != nil {
		return q.err
	}
	if err := s.mayRegisterIn(r, clusterOf(r, q)); err != nil {
		return err
	}
	var res endpoints.Result
	var err error
	switch c := clusterOf(r, q); {
	case id != "":
		res, err = s.Endpoints.Remove(r.Context(), c, id)
	case release:
		res, err = s.Endpoints.Release(r.Context(), c)
	default:
		res, err = s.Endpoints.Remove(r.Context(), c)
	}
	return s.registers(w, r, res, err, "")
}

func (s *Server) listEndpoints(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	if q.err != nil {
		return q.err
	}
	if s.Endpoints == nil {
		return s.mayRegister(r)
	}
	name, id, group := r.PathValue("cluster"), r.PathValue("id"), q.text("group")
	if id != "" && group == "" {
		group = "default"
	}
	list := api.EndpointList{APIVersion: api.Version, Kind: api.KindEndpointList, Items: []api.RegisteredCluster{}}
	found := 0
	for _, l := range s.Endpoints.List(group, name) {
		item := api.RegisteredCluster{Cluster: l.Name, Group: l.Group, Total: l.Total, EndSoon: l.EndSoon}
		for _, e := range l.Endpoints {
			if id == "" || id == e.ID {
				item.Endpoints = append(item.Endpoints, shown(e))
			}
		}
		found += len(item.Endpoints)
		list.Items = append(list.Items, item)
	}
	if name != "" && (len(list.Items) == 0 || id != "" && found == 0) {
		return notRegistered(name, id)
	}
	answer(w, http.StatusOK, list)
	return nil
}

// registers logs the result of a change, and sends it as the answer.
func (s *Server) registers(w http.ResponseWriter, r *http.Request, res endpoints.Result, err error, prefix string) error {
	if errors.Is(err, endpoints.ErrNone) {
		return notRegistered(r.PathValue("cluster"), r.PathValue("id"))
	}
	bad, some := errors.AsType[endpoints.BadMembers](err)
	if err != nil && !some {
		return s.registering(err, prefix)
	}
	if res.Set+res.Removed > 0 { // do not log the renewal of a lease
		s.log().Debug("endpoints registered by the admin API", "cluster", r.PathValue("cluster"), "id", r.PathValue("id"), "set", res.Set, "removed", res.Removed, "refused", len(bad), "by", callerOf(r.Context()).name, "peer", sender(r))
		s.did(r, "endpoints of cluster "+r.PathValue("cluster"))
	}
	out := api.EndpointsResult{APIVersion: api.Version, Kind: api.KindEndpointsResult, Set: res.Set, Unchanged: res.Unchanged, Removed: res.Removed}
	for _, one := range bad {
		out.Errors = append(out.Errors, api.EndpointError(*one))
	}
	if res.Set > 0 && s.Explainer != nil {
		out.Warning = s.Explainer.Unused(r.PathValue("cluster"))
	}
	answer(w, http.StatusOK, out)
	return nil
}

// notRegistered returns the error for a cluster or endpoint that is not registered.
func notRegistered(cluster, id string) error {
	if id == "" {
		return missing("", fmt.Sprintf("no endpoints of cluster %q are registered", cluster), "chancery endpoints ls lists all registered clusters")
	}
	return missing("", fmt.Sprintf("no endpoint %q of cluster %q is registered", id, cluster), "chancery endpoints ls "+cluster+" lists the registered ones")
}

// registering converts an error of the registry to a problem. It removes prefix from the field of the
// error.
func (s *Server) registering(err error, prefix string) error {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if e, ok := errors.AsType[*endpoints.FieldError](err); ok {
		return wrong(inner(e.Field, prefix), e.Message, "")
	}
	if e, ok := errors.AsType[*endpoints.LimitError](err); ok {
		return &problem{http.StatusConflict, "", e.Error(), "remove some, or release clusters that are not needed"}
	}
	if errors.Is(err, endpoints.ErrNoGroup) {
		return &problem{http.StatusNotFound, "group", err.Error(), "/api/v1/groups lists the groups"}
	}
	return &problem{http.StatusServiceUnavailable, "", err.Error(), "try again"} // the storage of the registry has failed
}

// inner returns field without prefix, if field is longer and begins with it.
func inner(field, prefix string) string {
	if len(field) > len(prefix) && field[:len(prefix)] == prefix {
		return field[len(prefix):]
	}
	return field
}

func ttlOf(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < endpoints.MinTTL || d > endpoints.MaxTTL {
		return 0, wrong(field, fmt.Sprintf("must be a duration from %v to %v, such as 30s", endpoints.MinTTL, endpoints.MaxTTL), "")
	}
	return d, nil
}

// registered converts an endpoint of the API to an endpoint of the registry.
func registered(in api.Endpoint) (endpoints.Registered, error) {
	e := endpoints.Registered{ID: in.ID, Endpoint: endpoints.Endpoint{
		Address: in.Address, Port: in.Port, Hostname: in.Hostname, Weight: in.Weight, Priority: in.Priority, Health: in.Health,
	}}
	if l := in.Locality; l != nil {
		e.Locality = endpoints.Locality(*l)
	}
	for name, fields := range in.Metadata {
		if e.Metadata == nil {
			e.Metadata = map[string]map[string]any{}
		}
		of := map[string]any{}
		e.Metadata[name] = of
		for key, raw := range fields {
			var v any
			if err := json.Unmarshal(raw, &v); err != nil {
				return e, &endpoints.FieldError{Field: "metadata", Message: err.Error()}
			}
			of[key] = v
		}
	}
	return e, nil
}

// registeredAll converts all endpoints of a cluster. One that cannot be read has the reason, and the fields that were
// read. No endpoint may have a lease of its own; the argument whose is the error message for this case.
func registeredAll(in []json.RawMessage, whose string) []endpoints.Registered {
	all := make([]endpoints.Registered, len(in))
	for i, raw := range in {
		var one api.Endpoint
		err := decode(raw, &one)
		if err != nil {
			err = unreadMember(err)
		} else if one.TTL != "" {
			err = wrong("ttl", whose, "")
		}
		read, bad := registered(one)
		all[i] = read
		all[i].Bad, _ = errors.AsType[*endpoints.FieldError](bad)
		if p, ok := errors.AsType[*problem](err); ok {
			all[i].Bad = &endpoints.FieldError{Field: p.field, Message: p.message}
		}
	}
	return all
}

// unreadMember converts an error of reading a member of a list. Its field is that of the member.
func unreadMember(err error) error {
	err = unread(err, maxAsked)
	if p, ok := errors.AsType[*problem](err); ok && p.field == "body" {
		err = wrong("", p.message, "")
	}
	return err
}

// shown converts an endpoint of the registry to an endpoint of the API.
func shown(e endpoints.ListedEndpoint) api.Endpoint {
	out := api.Endpoint{
		ID: e.ID, Address: e.Address, Port: e.Port, Hostname: e.Hostname, Weight: e.Weight, Priority: e.Priority, Health: e.Health,
	}
	if e.Locality != (endpoints.Locality{}) {
		out.Locality = new(api.Locality(e.Locality))
	}
	if e.TTL > 0 {
		out.TTL = e.TTL.String()
	}
	if !e.Until.IsZero() {
		out.Expires, out.EndsSoon = new(e.Until.UTC()), e.EndsSoon
	}
	for name, fields := range e.Metadata {
		if out.Metadata == nil {
			out.Metadata = map[string]map[string]json.RawMessage{}
		}
		of := map[string]json.RawMessage{}
		out.Metadata[name] = of
		for key, v := range fields {
			of[key], _ = json.Marshal(v) // cannot fail: the value was decoded from JSON
		}
	}
	return out
}
