package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/chancery-xds/chancery/xds"
)

// A StatusError is an HTTP response with an error status.
type StatusError struct {
	Server string // URI
	Code   int    // HTTP status code
	Cause  string // the server's error message
}

// Error implements error: "http://127.0.0.1:18000: 404 Not Found: no such path".
func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: %d %s: %s", e.Server, e.Code, http.StatusText(e.Code), e.Cause)
}

var errTimeout = errors.New("the server did not answer in time")

// post polls for the resources of a type. It returns nil if the resources have not changed.
func (t *transport) post(ctx context.Context, r *xds.Request) (*xds.Response, error) {
	fail := func(err error) error { return fmt.Errorf("%s: %w", t.uri, err) }
	body, err := encode(r)
	if err != nil {
		return nil, fail(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.base+r.Type.REST, bytes.NewReader(body))
	if err != nil {
		return nil, fail(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("X-Envoy-Expected-Rq-Timeout-Ms", strconv.FormatInt(t.options.Timeout.Milliseconds(), 10))
	answer, err := t.http.Do(req)
	if err != nil {
		return nil, fail(t.explain(ctx, err))
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusNotModified:
		return nil, nil
	case http.StatusOK:
	default:
		said, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10)) // if reading fails, the code is still useful
		return nil, &StatusError{Server: t.uri, Code: answer.StatusCode, Cause: cause(answer, said)}
	}
	most := t.options.MaxMessage
	said, err := io.ReadAll(io.LimitReader(answer.Body, int64(most)+1))
	switch {
	case err != nil:
		return nil, fail(fmt.Errorf("the response ended after %d bytes: %w", len(said), t.explain(ctx, err)))
	case len(said) > most:
		return nil, fail(xds.MemoryLimit{Bytes: most, Hint: cmp.Or(t.options.Limit.Hint, "MaxMessage")}.Exceeded(xds.LimitResponse, "the response has too many bytes"))
	}
	resp, err := t.decode(ctx, r.Type, said)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fail(fmt.Errorf("the response of %d bytes was not decoded in time: %w", len(said), t.explain(ctx, err)))
	case isLimit(err):
		return nil, fail(err)
	case err != nil:
		return nil, fail(&xds.MalformedError{Err: fmt.Errorf("%s %s: %w", http.MethodPost, r.Type.REST, err)})
	}
	return resp, nil
}

func isLimit(err error) bool {
	_, is := errors.AsType[*xds.LimitError](err)
	return is
}

// explain returns the error of a request without its URL, which may contain a password.
func (t *transport) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errTimeout) {
		return fmt.Errorf("%w: %s", errTimeout, t.options.Timeout)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if strings.Contains(err.Error(), "connection refused") {
		return fmt.Errorf("no server listens there: %w", err)
	}
	return err
}

// cause returns the server's error message: of a google.rpc.Status, or the text of the body.
func cause(answer *http.Response, said []byte) string {
	if to, err := answer.Location(); err == nil && answer.StatusCode/100 == 3 {
		return fmt.Sprintf("a redirect to %s, which is not followed", forLog(to.Host))
	}
	code := answer.StatusCode
	var status struct {
		Message string `json:"message"`
	}
	text := strings.TrimSpace(string(said))
	if json.Unmarshal(said, &status) == nil && status.Message != "" {
		text = status.Message
	}
	switch {
	case text != "":
		return forLog(text)
	case code == http.StatusNotFound:
		return "the server does not have this path: it may not support REST"
	}
	return "the server gave no reason"
}

// forLog returns a text of the server, cut and quoted for a log line.
func forLog(text string) string {
	const most = 500
	if len(text) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return strings.Trim(strconv.QuoteToGraphic(text), `"`) // without line breaks
}
