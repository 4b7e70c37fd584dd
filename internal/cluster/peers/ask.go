package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
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

// An Asking is how other servers are asked.
type Asking struct {
	TLS   certs.ClientFiles      // read again for each connection
	Token func() (string, error) // nil: there is none
}

// AskTime is how long another server has for its answer.
const AskTime = time.Second

// atOnce is how many are asked at a time: who hangs takes the time of few others.
const atOnce = 32

type client struct {
	http  *http.Client
	token func() (string, error)
	named bool // the CA of who is asked was named: not anybody with a certificate of the system's CAs is one of them
}

// errNamed is why a server is not asked that would get the token: whoever may announce himself in the store has a certificate of some public CA.
var errNamed = errors.New("it is not asked: the token is sent only to servers with a certificate of a CA that was named: give this server --replica-ca, or --admin-client-ca")

func newClient(a Asking) client {
	dialer := &net.Dialer{Timeout: AskTime}
	return client{&http.Client{
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			MaxResponseHeaderBytes: 16 << 10, DisableCompression: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second,
			DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conf, err := a.TLS.Config()
				if err != nil {
					return nil, err
				}
				conf.NextProtos = []string{"http/1.1"}
				return (&tls.Dialer{NetDialer: dialer, Config: conf}).DialContext(ctx, network, addr)
			},
		},
		// "Never follow an address that is not from the store."
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, a.Token, a.TLS.CA != ""}
}

func (c client) close() { c.http.CloseIdleConnections() }

// get returns the answer of the server with an ID, of at most most bytes; nil if there is nothing of that name.
func (c client) get(ctx context.Context, id, admin, path string, query url.Values, most int64) ([]byte, error) {
	to := admin + path
	if len(query) > 0 {
		to += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
	if err != nil {
		return nil, err
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
	resp, err := c.http.Do(req)
	if err == nil {
		defer resp.Body.Close()
		switch resp.StatusCode { // whoever it is: the gate is before all that a server says of itself
		case http.StatusUnauthorized:
			switch {
			case strings.HasPrefix(admin, "http:"):
				return nil, errors.New("it wants a token, which is sent over https only")
			case c.token == nil:
				return nil, errors.New("it wants a token, and this server has none")
			}
			return nil, errors.New("it does not take the token of this server")
		case http.StatusForbidden:
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
			return nil, fmt.Errorf("it answers %s", http.StatusText(resp.StatusCode))
		}
		var b []byte
		if b, err = io.ReadAll(io.LimitReader(resp.Body, most+1)); int64(len(b)) > most {
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
		err = e.Err // the rest repeats the URL
	}
	return nil, err
}

// Ask asks all other servers at once what the GET of a path answers. It returns within little more than [AskTime] who
// they are, and of who has not answered why. read is called with each answer, of size bytes at most, one after the other; the answer is nil
// if there is nothing of that name. Unsure says why there may be others.
func (r *Replicas) Ask(ctx context.Context, path string, query url.Values, size int64, read func(of *api.Replica, body []byte)) (all []api.Replica, unsure error) {
	r.look(ctx)
	members, unsure := r.others()
	ctx, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	room := make(chan struct{}, atOnce)
	var reading sync.Mutex // held while read is called
	var asking sync.WaitGroup
	all = make([]api.Replica, len(members))
	for i, m := range members {
		asking.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			all[i] = m.replica()
			body, err := m.ask(ctx, r.client, path, query, size)
			if err != nil {
				all[i].Error = text.Head(err.Error(), maxText)
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

func (m member) ask(ctx context.Context, c client, path string, query url.Values, size int64) ([]byte, error) {
	if m.err != nil {
		return nil, m.err
	}
	return c.get(ctx, m.ID, m.Admin, path, query, size)
}

// note notes whether a server has answered, or says when it has.
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
