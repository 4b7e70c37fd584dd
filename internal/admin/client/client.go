// Package client is the client of a Chancery server's admin API. Commands, other servers and programs use
// it.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/disk"
)

// DefaultURL is the default URL of the admin API on this machine.
const DefaultURL = "http://127.0.0.1:18001"

// maxAnswer is the maximum number of bytes in an answer. A list of 100,000 clients has 200 MB.
const maxAnswer = 512 << 20

// A Target is the URL of an admin API and the credentials for it.
type Target struct {
	URL       string // http://HOST:PORT, https://HOST:PORT, unix:///PATH; "": DefaultURL
	TokenFile string // file with the token of --admin-token-file; "": no token
	CA        string // file with the CA of the server's certificate; "": the CAs of the system
	Cert, Key string // files with a client certificate; "": none
}

// A Client sends requests to the admin API of one server. It is safe for concurrent use.
type Client struct {
	base  string // without a slash at its end
	shown string // URL as the user gave it
	token string
	http  *http.Client
}

// ErrTarget is wrapped by the errors of [Dial] about invalid targets.
var ErrTarget = errors.New("not the URL of an admin API")

// targetForms is the hint for an invalid target.
const targetForms = "write http://HOST:PORT, https://HOST:PORT or unix:///PATH"

// Dial returns a client for a target. It opens no connection.
func Dial(t Target) (*Client, error) {
	if t.URL == "" {
		t.URL = DefaultURL
	}
	c := &Client{shown: t.URL}
	transport := &http.Transport{TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: 2 * time.Second, MaxResponseHeaderBytes: 64 << 10} // does not use a proxy from the environment
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	transport.DialContext = dialer.DialContext
	switch u, err := url.Parse(t.URL); {
	case err != nil:
		return nil, fmt.Errorf("%w: %q: %s", ErrTarget, t.URL, targetForms)
	case u.Scheme == "unix":
		path := u.Path
		if u.Opaque != "" { // unix:PATH, relative to the working directory
			path = u.Opaque
		}
		if path == "" || u.Host != "" {
			return nil, fmt.Errorf("%w: %q: write unix:///PATH", ErrTarget, t.URL)
		}
		c.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
	case (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return nil, fmt.Errorf("%w: %q: %s", ErrTarget, t.URL, targetForms)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil || strings.Trim(u.Path, "/") != "":
		return nil, fmt.Errorf("%w: %q: write only scheme, host and port", ErrTarget, t.URL)
	default:
		c.base = u.Scheme + "://" + u.Host
	}
	if err := t.secure(transport); err != nil {
		return nil, err
	}
	if t.TokenFile != "" {
		b, err := disk.ReadSecret(t.TokenFile)
		if err != nil {
			return nil, err
		}
		c.token = strings.TrimSpace(string(b))
		if c.token == "" || strings.ContainsFunc(c.token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("%s: not a token: must be one line of printable ASCII", t.TokenFile)
		}
		if strings.HasPrefix(c.base, "http:") && !strings.HasPrefix(t.URL, "unix:") && !loopback(c.base) {
			return nil, fmt.Errorf("%w: %q: tokens for other machines need https", ErrTarget, t.URL)
		}
	}
	// Do not follow redirects: the token would go to another server.
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// Close closes idle connections, because the server accepts few connections and keeps idle ones open
// for minutes. The client remains usable.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Plain reports whether requests cross a network in plain text.
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

// secure reads the TLS files and configures the transport.
func (t Target) secure(transport *http.Transport) error {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := disk.ReadSecret(t.CA)
		if err != nil {
			return err
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s: contains no PEM certificate", t.CA)
		}
	}
	if t.Cert != "" || t.Key != "" {
		cert, err := disk.ReadSecret(t.Cert)
		key, other := disk.ReadSecret(t.Key)
		if err := errors.Join(err, other); err != nil {
			return err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return err
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	transport.TLSClientConfig = conf
	return nil
}

// A Refused is an answer whose status is not 2xx.
type Refused struct {
	Code   int // HTTP status
	Answer api.Error
}

// Error implements error.
func (r *Refused) Error() string {
	s := r.Answer.Message
	if r.Answer.Field != "" {
		s = r.Answer.Field + ": " + s
	}
	return s
}

// Unreachable is the error if no admin API answers at the URL.
type Unreachable struct {
	URL string
	Err error
}

// Error implements error.
func (u *Unreachable) Error() string {
	return fmt.Sprintf("no admin API answers at %s: %v", u.URL, u.Err)
}

// Local reports whether the URL is of the loopback, so that only a server of this machine can answer.
func (u *Unreachable) Local() bool { return loopback(u.URL) }

// Unwrap returns Err, for errors.Is and errors.As.
func (u *Unreachable) Unwrap() error { return u.Err }

// ndjson is a body of JSON objects, one on each line.
type ndjson []byte

// open sends a request and returns the answer. If the status is not 2xx, the error is a [*Refused].
func (c *Client) open(ctx context.Context, method, path string, query url.Values, body any, header http.Header) (*http.Response, error) {
	var in io.Reader
	kind := "application/json"
	switch body := body.(type) {
	case nil:
	case ndjson:
		in, kind = bytes.NewReader(body), "application/x-ndjson"
	case *io.PipeReader: // NDJSON that the caller writes while the request runs
		in, kind = body, "application/x-ndjson"
	default:
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	to := c.base + path
	if len(query) > 0 {
		to += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, to, in)
	if err != nil {
		return nil, err
	}
	maps.Copy(r.Header, header)
	if _, is := body.(ndjson); is { // the body may be large: send it only after the server agrees
		r.Header.Set("Expect", "100-continue")
	}
	if method != http.MethodGet { // a web page of another origin cannot send these content types without permission
		r.Header.Set("Content-Type", kind)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // the outer error repeats the URL
		}
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case NoHTTP1(err): // the original error prints received bytes
			err = errors.New("the peer does not speak HTTP/1.1; is this the xDS port, or TLS without https?")
		}
		return nil, &Unreachable{c.shown, err}
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	refused := &Refused{Code: resp.StatusCode}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(b, &refused.Answer) != nil || refused.Answer.Message == "" || refused.Answer.Kind != "Error" {
		text, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
		if text != "" {
			text = ": " + text[:min(len(text), 200)]
		}
		switch resp.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			refused.Answer.Message = resp.Status + text
		default:
			return nil, &Unreachable{c.shown, fmt.Errorf("not a Chancery, or an incompatible version, answered: %s%s", resp.Status, text)}
		}
	}
	return nil, refused
}

// NoHTTP1 reports whether an error of a net/http client means that the peer does not speak HTTP/1.1,
// such as a gRPC or TLS port. Only the text of the error distinguishes this case.
func NoHTTP1(err error) bool {
	for _, text := range []string{
		"HTTP/1.x transport connection broken",
		"malformed HTTP response",
		"readLoopPeekFail", // the peer sent bytes before the client sent a request
	} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// ask sends a request and decodes the answer.
func ask[T any](ctx context.Context, c *Client, method, path string, query url.Values, body any) (*T, error) {
	resp, err := c.open(ctx, method, path, query, body, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, &Unreachable{c.shown, fmt.Errorf("the answer was cut off: %w", err)}
	}
	answer := new(T)
	if err := json.Unmarshal(b, answer); err != nil {
		return nil, &Unreachable{c.shown, fmt.Errorf("not a Chancery, or an incompatible version, answered: %w", err)}
	}
	return answer, nil
}

const root = "/api/" + api.Version

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

// A Filter selects clients. The zero value selects the unhealthy clients.
type Filter struct {
	Node   string      // glob for node IDs: ?node=
	Group  string      // ?group=
	Type   string      // a short name or a type URL: ?type=
	States []api.State // ?state=, repeated
	All    bool        // healthy clients, too: ?all=1
	Left   bool        // remembered disconnected clients, too: ?left=1
	Limit  int         // ?limit=; 0: the server's default

	Replicas bool // clients of all servers of the store: ?replicas=1
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

// askAll sends a GET request, with ?replicas=1 if the query has that parameter. If an older server
// rejects the parameter, askAll repeats the request without it.
func askAll[T any](ctx context.Context, c *Client, path string, query url.Values) (*T, error) {
	answer, err := ask[T](ctx, c, http.MethodGet, root+path, query, nil)
	if refused, is := errors.AsType[*Refused](err); is && refused.Code == http.StatusBadRequest && refused.Answer.Field == paramReplicas {
		query.Del(paramReplicas)
		return ask[T](ctx, c, http.MethodGet, root+path, query, nil)
	}
	return answer, err
}

// Status asks GET /api/v1/status. The answer counts the clients of a group, or all clients if group is
// "".
func (c *Client) Status(ctx context.Context, group string) (*api.Status, error) {
	return ask[api.Status](ctx, c, http.MethodGet, root+"/status", Filter{Group: group}.query(), nil)
}

// StatusOfAll asks GET /api/v1/status?replicas=1, the status of all servers of the store.
func (c *Client) StatusOfAll(ctx context.Context, group string) (*api.Status, error) {
	return askAll[api.Status](ctx, c, "/status", Filter{Group: group, Replicas: true}.query())
}

// Clients asks GET /api/v1/clients.
func (c *Client) Clients(ctx context.Context, f Filter) (*api.ClientList, error) {
	return askAll[api.ClientList](ctx, c, "/clients", f.query())
}

// Client asks GET /api/v1/clients/{node}, all clients with that node ID.
func (c *Client) Client(ctx context.Context, node string) (*api.ClientList, error) {
	return ask[api.ClientList](ctx, c, http.MethodGet, root+"/clients/"+api.Segment(node), nil, nil)
}

// ClientOfAll asks GET /api/v1/clients/{node}?replicas=1, over all servers of the store.
func (c *Client) ClientOfAll(ctx context.Context, node string) (*api.ClientList, error) {
	return askAll[api.ClientList](ctx, c, "/clients/"+api.Segment(node), Filter{Replicas: true}.query())
}

// ClientResources asks GET /api/v1/clients/{node}/resources[/{type}[/{name}]].
func (c *Client) ClientResources(ctx context.Context, node, typ, name string, limit int) (*api.ClientResources, error) {
	q := url.Values{}
	setLimit(q, limit)
	return ask[api.ClientResources](ctx, c, http.MethodGet, root+"/clients/"+api.Segment(node)+"/resources"+below(typ, name), q, nil)
}

func below(typ, name string) string {
	switch {
	case typ == "":
		return ""
	case name == "":
		return "/" + api.Segment(typ)
	}
	return "/" + api.Segment(typ) + "/" + api.Segment(name)
}

// Explain asks GET /api/v1/clients/{node}/explain?type=&name=. Without a type, the explanation covers the
// whole client.
func (c *Client) Explain(ctx context.Context, node, typ, name string) (*api.Explanation, error) {
	q := url.Values{}
	set(q, "type", typ)
	set(q, "name", name)
	return ask[api.Explanation](ctx, c, http.MethodGet, root+"/clients/"+api.Segment(node)+"/explain", q, nil)
}

// ExplainOfAll asks GET /api/v1/clients/{node}/explain?replicas=1. The answer comes from the server to
// which the client is connected.
func (c *Client) ExplainOfAll(ctx context.Context, node, typ, name string) (*api.Explanation, error) {
	q := Filter{Type: typ, Replicas: true}.query()
	set(q, "name", name)
	return askAll[api.Explanation](ctx, c, "/clients/"+api.Segment(node)+"/explain", q)
}

// A ResourceFilter selects served resources.
type ResourceFilter struct {
	Type, Name  string // type and name in the path; "": all
	Group       string // ?group=
	Subscribers bool   // count the clients of each resource: ?subscribers=1
	Limit       int    // ?limit=; 0: the server's default
}

// Resources asks GET /api/v1/resources[/{type}[/{name}]]. With a name, the answer has one item for each
// group with the resource, and each item has the body.
func (c *Client) Resources(ctx context.Context, f ResourceFilter) (*api.ResourceList, error) {
	q := url.Values{}
	set(q, "group", f.Group)
	setBool(q, "subscribers", f.Subscribers)
	setLimit(q, f.Limit)
	return ask[api.ResourceList](ctx, c, http.MethodGet, root+"/resources"+below(f.Type, f.Name), q, nil)
}

// Refusals asks GET /api/v1/refusals.
func (c *Client) Refusals(ctx context.Context) (*api.RefusalList, error) {
	return ask[api.RefusalList](ctx, c, http.MethodGet, root+"/refusals", nil, nil)
}

// Groups asks GET /api/v1/groups.
func (c *Client) Groups(ctx context.Context) (*api.GroupList, error) {
	return ask[api.GroupList](ctx, c, http.MethodGet, root+"/groups", nil, nil)
}

// Reload asks POST /api/v1/reload.
func (c *Client) Reload(ctx context.Context, allowMassDelete bool) (*api.Reload, error) {
	return ask[api.Reload](ctx, c, http.MethodPost, root+"/reload", nil, api.ReloadRequest{AllowMassDelete: allowMassDelete})
}

// Impact asks POST /api/v1/impact.
func (c *Client) Impact(ctx context.Context, changes api.ImpactRequest) (*api.Impact, error) {
	return ask[api.Impact](ctx, c, http.MethodPost, root+"/impact", nil, changes)
}

// Node asks GET /api/v1/clients/{node}/node.
func (c *Client) Node(ctx context.Context, node string) (*api.NodeInfo, error) {
	return ask[api.NodeInfo](ctx, c, http.MethodGet, root+"/clients/"+api.Segment(node)+"/node", nil, nil)
}

// Endpoints asks GET /api/v1/endpoints[/{cluster}]. An empty group means all groups.
func (c *Client) Endpoints(ctx context.Context, group, cluster string) (*api.EndpointList, error) {
	q := url.Values{}
	set(q, "group", group)
	path := root + "/endpoints"
	if cluster != "" {
		path += "/" + api.Segment(cluster)
	}
	return ask[api.EndpointList](ctx, c, http.MethodGet, path, q, nil)
}

// PutEndpoint asks PUT /api/v1/endpoints/{cluster}/{id}.
func (c *Client) PutEndpoint(ctx context.Context, group, cluster, id string, e api.Endpoint) (*api.EndpointsResult, error) {
	q := url.Values{}
	set(q, "group", group)
	return ask[api.EndpointsResult](ctx, c, http.MethodPut, root+"/endpoints/"+api.Segment(cluster)+"/"+api.Segment(id), q, e)
}

// PutEndpoints asks PUT /api/v1/endpoints/{cluster}. The request, an [api.EndpointsRequest] or its JSON, replaces all
// registered endpoints of the cluster.
func (c *Client) PutEndpoints(ctx context.Context, group, cluster string, all any) (*api.EndpointsResult, error) {
	q := url.Values{}
	set(q, "group", group)
	return ask[api.EndpointsResult](ctx, c, http.MethodPut, root+"/endpoints/"+api.Segment(cluster), q, all)
}

// RemoveEndpoints asks DELETE /api/v1/endpoints/{cluster}[/{id}]. With release, the server again serves
// the cluster's endpoints from files or revisions.
func (c *Client) RemoveEndpoints(ctx context.Context, group, cluster, id string, release bool) (*api.EndpointsResult, error) {
	q := url.Values{}
	set(q, "group", group)
	setBool(q, "release", release)
	path := root + "/endpoints/" + api.Segment(cluster)
	if id != "" {
		path += "/" + api.Segment(id)
	}
	return ask[api.EndpointsResult](ctx, c, http.MethodDelete, path, q, nil)
}

// About asks GET /version.
func (c *Client) About(ctx context.Context) (*api.VersionInfo, error) {
	return ask[api.VersionInfo](ctx, c, http.MethodGet, "/version", nil, nil)
}

// URL returns the URL of the admin API, as the user gave it.
func (c *Client) URL() string { return c.shown }

// Raw sends a GET request for any path, such as /config_dump, and returns the body unchanged.
func (c *Client) Raw(ctx context.Context, path string) ([]byte, error) {
	answer, err := ask[json.RawMessage](ctx, c, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	return *answer, nil
}
