package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/disk"
)

// newKeys returns keys without reading them.
func newKeys(where string, log *slog.Logger) (*Keys, error) {
	if !strings.Contains(where, "://") {
		// A file is cheap to read, and a user who removes a key from it expects an effect at once.
		return &Keys{where: where, file: true, read: fileReader(where), every: 5 * time.Second, least: time.Second, log: log}, nil
	}
	u, err := CheckURL(where)
	if err != nil {
		return nil, err
	}
	shown := *u
	shown.RawQuery = "" // the query may contain a secret
	return &Keys{where: shown.String(), read: webReader(u), every: 5 * time.Minute, least: 10 * time.Second, log: log}, nil
}

// CheckURL checks the URL of a key set. Plain HTTP is only allowed for this machine, because a
// network could replace the keys.
func CheckURL(where string) (*url.URL, error) {
	u, err := url.Parse(where)
	if err != nil {
		return nil, errors.New("--jwks: the URL is malformed")
	}
	switch {
	case u.User != nil:
		return nil, errors.New("--jwks: a URL with a user is not supported")
	case u.Host == "":
		return nil, errors.New("--jwks: the URL has no host")
	case u.Scheme == "https", u.Scheme == "http" && local(u.Hostname()):
		return u, nil
	case u.Scheme == "http":
		return nil, fmt.Errorf("--jwks: http://%s is plain text, so the keys could be replaced on their way: use https://, or a file", u.Host)
	}
	return nil, fmt.Errorf("--jwks: the scheme %q is not supported: give a file or an https:// URL", u.Scheme+"://")
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

func fileReader(path string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		b, err := disk.ReadRegular(path, maxKeySet)
		if err != nil {
			return nil, fmt.Errorf("--jwks: %w", err)
		}
		return b, nil
	}
}

// webReader reads a URL. It follows a few redirects, but not to plain HTTP.
func webReader(u *url.URL) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		tr := http.DefaultTransport.(*http.Transport).Clone()
		tr.DisableKeepAlives = true // the next read is minutes away
		tr.MaxResponseHeaderBytes = 64 << 10
		c := http.Client{Transport: tr, Timeout: fetchTime, CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if _, err := CheckURL(r.URL.String()); err != nil || r.URL.Scheme != u.Scheme || len(via) > 3 {
				return errors.New("too many redirects, or a redirect to plain text")
			}
			return nil
		}}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Accept", "application/jwk-set+json, application/json")
		resp, err := c.Do(r)
		if err != nil {
			if e, ok := errors.AsType[*url.Error](err); ok {
				err = e.Err // the outer error repeats the URL, with its query
			}
			return nil, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("HTTP status %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySet+1))
		if err == nil && len(b) > maxKeySet {
			err = fmt.Errorf("the key set has more than %d bytes", maxKeySet)
		}
		return b, err
	}
}
