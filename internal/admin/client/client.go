package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// DefaultURL is where commands find the daemon of this machine.
const DefaultURL = "http://127.0.0.1:18001"

// maxAnswer is how much of an answer is read: 100,000 clients have 200 MB.
const maxAnswer = 512 << 20

// A Target says where the admin API of a daemon is, and how to be let in.
type Target struct {
	URL       string // http://HOST:PORT, https://HOST:PORT, unix:///PATH; "": DefaultURL
	TokenFile string // with the token of --admin-token-file; "": none
	CA        string // file with the CA of the daemon's certificate; "": those of the system
	Cert, Key string // files with a client certificate; "": none
}

// A Daemon is one that can be asked. Several goroutines may use it at once.
type Client struct {
	base  string // without / at its end
	shown string // as the user has given it
	token string
	http  *http.Client
}

// ErrTarget is what all errors of [Dial] are that say that a target cannot be one.
var ErrTarget = errors.New("not the URL of an admin API")

// want is what targets are.
const want = "write http://HOST:PORT, https://HOST:PORT or unix:///PATH"

// Dial returns the daemon of a target. It connects to nobody yet.
func Dial(t Target) (*Client, error) {
	if t.URL == "" {
		t.URL = DefaultURL
	}
	d := &Client{shown: t.URL}
	transport := &http.Transport{TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: 2 * time.Second, MaxResponseHeaderBytes: 64 << 10} // no proxy of the environment
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	transport.DialContext = dialer.DialContext
	switch u, err := url.Parse(t.URL); {
	case err != nil:
		return nil, fmt.Errorf("%w: %q: %s", ErrTarget, t.URL, want)
	case u.Scheme == "unix":
		path := u.Path
		if u.Opaque != "" { // unix:path, in the working directory
			path = u.Opaque
		}
		if path == "" || u.Host != "" {
			return nil, fmt.Errorf("%w: %q: write unix:///PATH", ErrTarget, t.URL)
		}
		d.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
	case (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return nil, fmt.Errorf("%w: %q: %s", ErrTarget, t.URL, want)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil || strings.Trim(u.Path, "/") != "":
		return nil, fmt.Errorf("%w: %q: write only scheme, host and port", ErrTarget, t.URL)
	default:
		d.base = u.Scheme + "://" + u.Host
	}
	if err := t.secure(transport); err != nil {
		return nil, err
	}
	if t.TokenFile != "" {
		b, err := os.ReadFile(t.TokenFile)
		if err != nil {
			return nil, err
		}
		if d.token = strings.TrimSpace(string(b)); d.token == "" || strings.ContainsFunc(d.token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("%s: not a token: must be one line of printable ASCII", t.TokenFile)
		}
		if strings.HasPrefix(d.base, "http:") && !strings.HasPrefix(t.URL, "unix:") && !loopback(d.base) {
			return nil, fmt.Errorf("%w: %q: a token is sent to other machines over https only", ErrTarget, t.URL)
		}
	}
	// A redirect would take the token elsewhere, and no answer is one.
	d.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return d, nil
}

// Close ends the connections over which nothing goes. The server takes few, and keeps each for minutes. The daemon may be
// asked again.
func (d *Client) Close() { d.http.CloseIdleConnections() }

// Plain reports whether what is asked goes over a network in plain text.
func (t Target) Plain() bool {
	return strings.HasPrefix(t.URL, "http:") && !loopback(t.URL)
}

func loopback(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	return strings.EqualFold(u.Hostname(), "localhost") || net.ParseIP(u.Hostname()).IsLoopback()
}

// secure reads the files of TLS.
func (t Target) secure(transport *http.Transport) error {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return err
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s: there is no certificate in PEM in it", t.CA)
		}
	}
	if t.Cert != "" || t.Key != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return err
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	transport.TLSClientConfig = conf
	return nil
}

// A Refused is an answer that is not 2xx.
type Refused struct {
	Code int // of HTTP
	Said api.Error
}

// Error implements error.
func (r *Refused) Error() string {
	s := r.Said.Message
	if r.Said.Field != "" {
		s = r.Said.Field + ": " + s
	}
	return s
}

// Unreachable is the error of a daemon that does not answer, or not as one does.
type Unreachable struct {
	URL string
	Err error
}

// Error implements error.
func (u *Unreachable) Error() string {
	return fmt.Sprintf("no admin API answers at %s: %v", u.URL, u.Err)
}

// Unwrap implements what errors.Is needs.
func (u *Unreachable) Unwrap() error { return u.Err }

// lines are a body of JSON, an object a line.
type lines []byte

// open asks, and returns an answer that is 2xx.
func (d *Client) open(ctx context.Context, method, path string, query url.Values, body any, header http.Header) (*http.Response, error) {
	var in io.Reader
	kind := "application/json"
	switch body := body.(type) {
	case nil:
	case lines:
		in, kind = bytes.NewReader(body), "application/x-ndjson"
	case *io.PipeReader: // the same, while they come
		in, kind = body, "application/x-ndjson"
	default:
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	to := d.base + path
	if len(query) > 0 {
		to += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, to, in)
	if err != nil {
		return nil, err
	}
	maps.Copy(r.Header, header)
	if _, is := body.(lines); is { // much may come, which a server that takes nothing does not want
		r.Header.Set("Expect", "100-continue")
	}
	if method != http.MethodGet { // which no page of another origin can send unasked
		r.Header.Set("Content-Type", kind)
	}
	if d.token != "" {
		r.Header.Set("Authorization", "Bearer "+d.token)
	}
	resp, err := d.http.Do(r)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // the rest repeats the URL
		}
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case NoHTTP1(err): // whose bytes would be printed
			err = errors.New("it does not speak HTTP/1.1; is it where xDS is served, or TLS without https?")
		}
		return nil, &Unreachable{d.shown, err}
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	refused := &Refused{Code: resp.StatusCode}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(b, &refused.Said) != nil || refused.Said.Message == "" || refused.Said.Kind != "Error" {
		text, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
		if text != "" {
			text = ": " + text[:min(len(text), 200)]
		}
		switch resp.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			refused.Said.Message = resp.Status + text
		default:
			return nil, &Unreachable{d.shown, fmt.Errorf("what answers there is not Chancery, or of another version: %s%s", resp.Status, text)}
		}
	}
	return nil, refused
}

// NoHTTP1 reports whether an error of a client of net/http is that what answers does not speak
// HTTP/1.1: a port of gRPC, or of TLS. Nothing but its text tells.
func NoHTTP1(err error) bool {
	for _, says := range []string{
		"HTTP/1.x transport connection broken",
		"malformed HTTP response",
		"readLoopPeekFail", // it spoke before it was asked
	} {
		if strings.Contains(err.Error(), says) {
			return true
		}
	}
	return false
}

// ask asks, and reads the answer.
func ask[T any](ctx context.Context, d *Client, method, path string, query url.Values, body any) (*T, error) {
	resp, err := d.open(ctx, method, path, query, body, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, &Unreachable{d.shown, fmt.Errorf("the answer was cut off: %w", err)}
	}
	answer := new(T)
	if err := json.Unmarshal(b, answer); err != nil {
		return nil, &Unreachable{d.shown, fmt.Errorf("what answers there is not Chancery, or of another version: %w", err)}
	}
	return answer, nil
}

const root = "/api/" + api.Version

// segment is a text as one segment of a path.
func segment(s string) string {
	switch s { // which would be another path
	case ".", "..":
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func setBool(q url.Values, name string, value bool) {
	if value {
		q.Set(name, "1")
	}
}

func setLimit(q url.Values, limit int) {
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
}

// A Filter selects clients. The zero value selects those that are not well.
type Filter struct {
	Node   string      // a glob of node ids: ?node=
	Group  string      // ?group=
	Type   string      // a short name or a URL: ?type=
	States []api.State // ?state=, repeated
	All    bool        // the healthy ones, too: ?all=1
	Left   bool        // those that have left, too: ?left=1
	Limit  int         // ?limit=; 0: the server's

	Replicas bool // those of all servers of the store: ?replicas=1
}

func (f Filter) query() url.Values {
	q := url.Values{}
	set(q, "node", f.Node)
	set(q, "group", f.Group)
	set(q, "type", f.Type)
	for _, s := range f.States {
		q.Add("state", string(s))
	}
	setBool(q, "all", f.All)
	setBool(q, "left", f.Left)
	setBool(q, paramReplicas, f.Replicas)
	setLimit(q, f.Limit)
	return q
}

const paramReplicas = "replicas"

// askAll asks with ?replicas=1 if the query has it, and again without it if the server is of a version that does not know that.
func askAll[T any](ctx context.Context, d *Client, path string, query url.Values) (*T, error) {
	answer, err := ask[T](ctx, d, http.MethodGet, root+path, query, nil)
	if refused, is := errors.AsType[*Refused](err); is && refused.Code == http.StatusBadRequest && refused.Said.Field == paramReplicas {
		query.Del(paramReplicas)
		return ask[T](ctx, d, http.MethodGet, root+path, query, nil)
	}
	return answer, err
}

// Status asks GET /api/v1/status: of the clients of a group, or of all if that is "".
func (d *Client) Status(ctx context.Context, group string) (*api.Status, error) {
	return ask[api.Status](ctx, d, http.MethodGet, root+"/status", Filter{Group: group}.query(), nil)
}

// StatusOfAll asks GET /api/v1/status?replicas=1: of all servers of the store, if there is one.
func (d *Client) StatusOfAll(ctx context.Context, group string) (*api.Status, error) {
	return askAll[api.Status](ctx, d, "/status", Filter{Group: group, Replicas: true}.query())
}

// Clients asks GET /api/v1/clients.
func (d *Client) Clients(ctx context.Context, f Filter) (*api.ClientList, error) {
	return askAll[api.ClientList](ctx, d, "/clients", f.query())
}

// Client asks GET /api/v1/clients/{node}: all clients of that node id.
func (d *Client) Client(ctx context.Context, node string) (*api.ClientList, error) {
	return ask[api.ClientList](ctx, d, http.MethodGet, root+"/clients/"+segment(node), nil, nil)
}

// ClientOfAll asks GET /api/v1/clients/{node}?replicas=1: of all servers of the store, if there is one.
func (d *Client) ClientOfAll(ctx context.Context, node string) (*api.ClientList, error) {
	return askAll[api.ClientList](ctx, d, "/clients/"+segment(node), Filter{Replicas: true}.query())
}

// ClientResources asks GET /api/v1/clients/{node}/resources[/{type}[/{name}]].
func (d *Client) ClientResources(ctx context.Context, node, typ, name string, limit int) (*api.ClientResources, error) {
	q := url.Values{}
	setLimit(q, limit)
	return ask[api.ClientResources](ctx, d, http.MethodGet, root+"/clients/"+segment(node)+"/resources"+below(typ, name), q, nil)
}

func below(typ, name string) string {
	switch {
	case typ == "":
		return ""
	case name == "":
		return "/" + segment(typ)
	}
	return "/" + segment(typ) + "/" + segment(name)
}

// Explain asks GET /api/v1/clients/{node}/explain?type=&name=; without a type it is of the
// whole client.
func (d *Client) Explain(ctx context.Context, node, typ, name string) (*api.Explanation, error) {
	q := url.Values{}
	set(q, "type", typ)
	set(q, "name", name)
	return ask[api.Explanation](ctx, d, http.MethodGet, root+"/clients/"+segment(node)+"/explain", q, nil)
}

// ExplainOfAll asks GET /api/v1/clients/{node}/explain?replicas=1: the server of the store at which the client is.
func (d *Client) ExplainOfAll(ctx context.Context, node, typ, name string) (*api.Explanation, error) {
	q := Filter{Type: typ, Replicas: true}.query()
	set(q, "name", name)
	return askAll[api.Explanation](ctx, d, "/clients/"+segment(node)+"/explain", q)
}

// A ResourceFilter selects what is served.
type ResourceFilter struct {
	Type, Name  string // of the path; "": all
	Group       string // ?group=
	Subscribers bool   // count the clients: ?subscribers=1
	Limit       int    // ?limit=; 0: the server's
}

// Resources asks GET /api/v1/resources[/{type}[/{name}]]. With a name, the items (one for each
// group that has it) have their body.
func (d *Client) Resources(ctx context.Context, f ResourceFilter) (*api.ResourceList, error) {
	q := url.Values{}
	set(q, "group", f.Group)
	setBool(q, "subscribers", f.Subscribers)
	setLimit(q, f.Limit)
	return ask[api.ResourceList](ctx, d, http.MethodGet, root+"/resources"+below(f.Type, f.Name), q, nil)
}

// Refusals asks GET /api/v1/refusals.
func (d *Client) Refusals(ctx context.Context) (*api.RefusalList, error) {
	return ask[api.RefusalList](ctx, d, http.MethodGet, root+"/refusals", nil, nil)
}

// Groups asks GET /api/v1/groups.
func (d *Client) Groups(ctx context.Context) (*api.GroupList, error) {
	return ask[api.GroupList](ctx, d, http.MethodGet, root+"/groups", nil, nil)
}

// Wait asks GET /api/v1/wait?for=synced: it answers when all clients that the filter selects
// (of its Node, Group and Type) have accepted revision (0: the newest), when one refuses, or
// after timeout.
func (d *Client) Wait(ctx context.Context, f Filter, revision uint64, timeout time.Duration) (*api.WaitResult, error) {
	q := Filter{Node: f.Node, Group: f.Group, Type: f.Type}.query()
	q.Set("for", "synced")
	q.Set("timeout", timeout.String())
	if revision > 0 {
		q.Set("revision", strconv.FormatUint(revision, 10))
	}
	return ask[api.WaitResult](ctx, d, http.MethodGet, root+"/wait", q, nil)
}

// WaitAll asks GET /api/v1/wait?replicas=1: it answers within little more than a second whether the clients of all servers of the store have
// accepted its revision stored, such as r412, or a later one.
func (d *Client) WaitAll(ctx context.Context, f Filter, stored string) (*api.WaitResult, error) {
	q := Filter{Node: f.Node, Group: f.Group, Type: f.Type, Replicas: true}.query()
	q.Set("for", "synced")
	q.Set("stored", stored)
	return ask[api.WaitResult](ctx, d, http.MethodGet, root+"/wait", q, nil)
}

// Reload asks POST /api/v1/reload. The body is {"allow_mass_delete": bool}.
func (d *Client) Reload(ctx context.Context, allowMassDelete bool) (*api.Reload, error) {
	return ask[api.Reload](ctx, d, http.MethodPost, root+"/reload", nil, api.ReloadRequest{AllowMassDelete: allowMassDelete})
}

// Impact asks POST /api/v1/impact.
func (d *Client) Impact(ctx context.Context, changes api.ImpactRequest) (*api.Impact, error) {
	return ask[api.Impact](ctx, d, http.MethodPost, root+"/impact", nil, changes)
}

// Node asks GET /api/v1/clients/{node}/node.
func (d *Client) Node(ctx context.Context, node string) (*api.NodeInfo, error) {
	return ask[api.NodeInfo](ctx, d, http.MethodGet, root+"/clients/"+segment(node)+"/node", nil, nil)
}

// Endpoints asks GET /api/v1/endpoints[/{cluster}]: which are registered, in a group unless that is "".
func (d *Client) Endpoints(ctx context.Context, group, cluster string) (*api.EndpointList, error) {
	q := url.Values{}
	set(q, "group", group)
	path := root + "/endpoints"
	if cluster != "" {
		path += "/" + segment(cluster)
	}
	return ask[api.EndpointList](ctx, d, http.MethodGet, path, q, nil)
}

// PutEndpoint asks PUT /api/v1/endpoints/{cluster}/{id}.
func (d *Client) PutEndpoint(ctx context.Context, group, cluster, id string, e api.Endpoint) (*api.EndpointsResult, error) {
	q := url.Values{}
	set(q, "group", group)
	return ask[api.EndpointsResult](ctx, d, http.MethodPut, root+"/endpoints/"+segment(cluster)+"/"+segment(id), q, e)
}

// PutEndpoints asks PUT /api/v1/endpoints/{cluster}: these are all endpoints of the cluster then.
func (d *Client) PutEndpoints(ctx context.Context, group, cluster string, all api.EndpointsRequest) (*api.EndpointsResult, error) {
	q := url.Values{}
	set(q, "group", group)
	return ask[api.EndpointsResult](ctx, d, http.MethodPut, root+"/endpoints/"+segment(cluster), q, all)
}

// RemoveEndpoints asks DELETE /api/v1/endpoints/{cluster}[/{id}]. If release is true, what is said elsewhere of the
// cluster's endpoints counts again.
func (d *Client) RemoveEndpoints(ctx context.Context, group, cluster, id string, release bool) (*api.EndpointsResult, error) {
	q := url.Values{}
	set(q, "group", group)
	setBool(q, "release", release)
	path := root + "/endpoints/" + segment(cluster)
	if id != "" {
		path += "/" + segment(id)
	}
	return ask[api.EndpointsResult](ctx, d, http.MethodDelete, path, q, nil)
}

// About asks GET /version: which program answers, and what it serves.
func (d *Client) About(ctx context.Context) (*api.VersionInfo, error) {
	return ask[api.VersionInfo](ctx, d, http.MethodGet, "/version", nil, nil)
}

// Shown is where the daemon is, as the user has said it.
func (d *Client) Shown() string { return d.shown }

// Raw asks GET for a path, such as /api/v1/status or /config_dump, and returns what is answered.
func (d *Client) Raw(ctx context.Context, path string) ([]byte, error) {
	answer, err := ask[json.RawMessage](ctx, d, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	return *answer, nil
}
