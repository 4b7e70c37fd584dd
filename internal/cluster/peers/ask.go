package peers

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/auth/certs"
	"github.com/chancery-xds/chancery/internal/text"
)

// maxText limits a text from another server, in bytes.
const maxText = 300

// maxProblem limits an error answer of another server, in bytes.
const maxProblem = 4 << 10

// An Asking configures the requests to other servers.
type Asking struct {
	TLS   certs.ClientFiles      // read again for each connection
	Log   *slog.Logger           // gets warnings about them; nil: none
	Token func() (string, error) // nil: no token
}

// AskTime is the time that another server has for its answer.
const AskTime = time.Second

// atOnce limits concurrent requests. So a server that does not answer delays only a few others.
const atOnce = 32

type client struct {
	http  *http.Client
	token func() (string, error)
	named bool // the user configured a CA of the other servers; the system's CAs would accept any public certificate
}

// errNamed is the reason for not sending the token to a server. Without a configured CA, any program
// that can write an announcement could receive the token, because it can have a certificate of a
// public CA.
var errNamed = errors.New("not asked: the token is sent only to servers with a certificate of a configured CA: give this server --replica-ca or --admin-client-ca")

func newClient(a Asking) client {
	dialer := &net.Dialer{Timeout: AskTime}
	config := certs.ClientConfig(a.TLS, a.Log)
	return client{&http.Client{
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			MaxResponseHeaderBytes: 16 << 10, DisableCompression: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second,
			DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conf, err := config(ctx)
				if err != nil {
					return nil, err
				}
				conf = conf.Clone()
				conf.NextProtos = []string{"http/1.1"}
				return (&tls.Dialer{NetDialer: dialer, Config: conf}).DialContext(ctx, network, addr)
			},
		},
		// "Never follow an address that is not from the store."
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, a.Token, a.TLS.CA != ""}
}

func (c client) close() { c.http.CloseIdleConnections() }

// A request is a question to a server (GET), or an order (POST).
type request struct {
	method, path string
	query        url.Values
	in           []byte // the body, in JSON
}

// forbidden is the error of a server whose caller lacks a role.
type forbidden struct{ text string }

func (f *forbidden) Error() string { return f.text }

// send returns the answer of the server with an ID, which has at most `most` bytes. The answer to 404
// Not Found is nil.
func (c client) send(ctx context.Context, id, admin string, q request, most int64) ([]byte, error) {
	to := admin + q.path
	if len(q.query) > 0 {
		to += "?" + q.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, q.method, to, bytes.NewReader(q.in))
	if err != nil {
		return nil, err
	}
	if q.method != http.MethodGet {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != nil && strings.HasPrefix(admin, "https:") {
		if !c.named {
			return nil, errNamed
		}
		token, err := c.token()
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if stated := api.StatedCaller(ctx); stated != "" {
		req.Header.Set(api.CallerHeader, stated)
	}
	resp, err := c.http.Do(req)
	if err == nil {
		defer resp.Body.Close()
		switch resp.StatusCode { // before the ID is checked, because a server checks the authorization before anything else
		case http.StatusUnauthorized:
			switch {
			case strings.HasPrefix(admin, "http:"):
				return nil, errors.New("it requires a token, which is sent over https only")
			case c.token == nil:
				return nil, errors.New("it requires a token, and this server has none")
			}
			return nil, errors.New("it rejects the token of this server")
		case http.StatusForbidden:
			if p := readProblem(resp.Body); p.Field == api.RoleField {
				return nil, &forbidden{strings.TrimPrefix(textOf(p), ": ")}
			}
			if q.method != http.MethodGet {
				return nil, errors.New("it takes commands only from authenticated callers: give the servers --admin-token-file or --admin-client-ca")
			}
			return nil, errors.New("it answers Forbidden")
		}
		if resp.Header.Get(api.ReplicaHeader) != id {
			return nil, errors.New("another server answers at its address")
		}
		switch resp.StatusCode {
		case http.StatusNotFound:
			return nil, nil
		case http.StatusOK:
		default:
			return nil, errors.New("it answers " + http.StatusText(resp.StatusCode) + textOf(readProblem(resp.Body)))
		}
		var b []byte
		b, err = io.ReadAll(io.LimitReader(resp.Body, most+1))
		if int64(len(b)) > most {
			return nil, fmt.Errorf("its answer has more than %d bytes", most)
		}
		if err == nil {
			return b, nil
		}
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("no answer within %v", AskTime)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // the outer error repeats the URL
	}
	return nil, err
}

// readProblem reads an error answer. The message is "" if the answer is not an error of the admin API.
func readProblem(body io.Reader) (is api.Error) {
	if err := json.NewDecoder(io.LimitReader(body, maxProblem)).Decode(&is); err != nil || is.Kind != api.KindError {
		return api.Error{}
	}
	return is
}

// textOf returns the message and the hint of an error answer, with ": " before it; "" if it has no message.
func textOf(is api.Error) string {
	if is.Message == "" {
		return ""
	}
	s := ": " + is.Message
	if is.Hint != "" {
		s += " (" + is.Hint + ")"
	}
	return s
}

// Ask sends a GET request to all other servers at once, and returns within little more than
// [AskTime]. The result has each server, with the reason if it has not answered. Ask calls read with
// one answer at a time, of at most size bytes; the body is nil for 404 Not Found. The error unsure is
// the reason why there may be other servers.
func (r *Replicas) Ask(ctx context.Context, path string, query url.Values, size int64, read func(of *api.Replica, body []byte)) (all []api.Replica, unsure error) {
	return r.sendAll(ctx, request{http.MethodGet, path, query, nil}, size, read)
}

// Order is like [Replicas.Ask] with a POST request, whose body is JSON.
func (r *Replicas) Order(ctx context.Context, path string, in []byte, size int64, read func(of *api.Replica, body []byte)) (all []api.Replica, unsure error) {
	return r.sendAll(ctx, request{http.MethodPost, path, nil, in}, size, read)
}

func (r *Replicas) sendAll(ctx context.Context, q request, size int64, read func(of *api.Replica, body []byte)) (all []api.Replica, unsure error) {
	r.look(ctx)
	members, unsure := r.others()
	ctx, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	room := make(chan struct{}, atOnce)
	var reading sync.Mutex // held during a call of read
	var asking sync.WaitGroup
	all = make([]api.Replica, len(members))
	for i, m := range members {
		asking.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			all[i] = m.replica()
			body, err := m.send(ctx, r.client, q, size)
			if err != nil {
				all[i].Error = text.Head(err.Error(), maxText)
				_, all[i].Forbidden = errors.AsType[*forbidden](err)
			} else {
				reading.Lock()
				read(&all[i], body)
				reading.Unlock()
			}
			r.note(&all[i])
		})
	}
	asking.Wait()
	return all, unsure
}

func (m member) send(ctx context.Context, c client, q request, size int64) ([]byte, error) {
	if m.err != nil {
		return nil, m.err
	}
	return c.send(ctx, m.ID, m.Admin, q, size)
}

// note records that a server has answered. If it has not, note sets the time of its last answer.
func (r *Replicas) note(of *api.Replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of.Error == "" {
		r.seen[of.ID] = time.Now()
	} else if at, ok := r.seen[of.ID]; ok {
		of.Seen = &at
	}
}

func (m member) replica() api.Replica {
	return api.Replica{ID: m.ID, Address: m.Admin, Host: m.Host, Version: m.Version, Since: m.Since, Revision: m.Revision, StoreRevision: m.Revision}
}
