package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// An EndpointStream registers endpoints, line by line, while the stream is open. One goroutine may send
// while another goroutine receives.
type EndpointStream struct {
	out  *io.PipeWriter
	body io.ReadCloser
	in   *bufio.Reader
	sent int
}

// EndpointStream opens POST /api/v1/endpoints. The endpoints get a lease of ttl; if ttl is 0, they get no
// lease. The stream ends with ctx.
func (c *Client) EndpointStream(ctx context.Context, ttl time.Duration) (*EndpointStream, error) {
	q := url.Values{}
	if ttl > 0 {
		q.Set("ttl", ttl.String())
	}
	in, out := io.Pipe()
	resp, err := c.open(ctx, http.MethodPost, root+"/endpoints", q, in, nil) //nolint:bodyclose // Close closes it
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	return &EndpointStream{out: out, body: resp.Body, in: bufio.NewReader(resp.Body)}, nil
}

// Send sends lines and returns the number of the last line. Without lines it sends an empty line, which
// renews the lease.
func (s *EndpointStream) Send(all []api.EndpointLine) (int, error) {
	var b bytes.Buffer
	for _, l := range all {
		text, err := json.Marshal(l)
		if err != nil {
			return 0, err
		}
		b.Write(append(text, '\n'))
	}
	if len(all) == 0 {
		b.WriteByte('\n')
	}
	s.sent += max(len(all), 1)
	_, err := s.out.Write(b.Bytes())
	return s.sent, err
}

// Receive waits for the next answer. The error is io.EOF when the server has ended the stream.
func (s *EndpointStream) Receive() (a api.EndpointLines, err error) {
	text, err := s.in.ReadBytes('\n')
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(text, &a)
}

// Close ends the stream. The endpoints stay registered until their lease expires.
func (s *EndpointStream) Close() {
	_ = s.out.Close()
	s.body.Close()
}
