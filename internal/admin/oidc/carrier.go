package oidc

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/chancery-xds/chancery/internal/listen"
)

// maxAnswer is the maximum size of an answer of the issuer, in bytes.
const maxAnswer = 1 << 20

// A carrier is the transport of all requests to the issuer. The secret of the client and the keys of the issuer never
// pass a network in plain text, also if the issuer's configuration or a redirect names such a URL.
type carrier struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	if !secure(r.URL.Scheme, r.URL.Host) {
		return nil, fmt.Errorf("%s://%s is plain text", r.URL.Scheme, r.URL.Host)
	}
	answer, err := c.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	return answer, nil
}

// secure reports whether no network can read the requests to a host.
func secure(scheme, host string) bool {
	return scheme == "https" || scheme == "http" && listen.LocalHost(host)
}

// An answers is a transport that repeats the last answer to requests for the same URL within [again]. Each token with
// an unknown key makes [oidc.RemoteKeySet] read the keys, one time after the other, so that the fields need no lock.
type answers struct {
	client *http.Client

	url  string
	at   time.Time
	body []byte
	err  error
}

// RoundTrip implements [http.RoundTripper].
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if now := time.Now(); a.url != r.URL.String() || now.Sub(a.at) >= again {
		a.url, a.at = r.URL.String(), now
		a.body, a.err = a.read(r)
	}
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(a.body)), Request: r}, nil
}

func (a *answers) read(r *http.Request) ([]byte, error) {
	answer, err := a.client.Do(r.Clone(r.Context()))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP status %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	return io.ReadAll(answer.Body)
}
