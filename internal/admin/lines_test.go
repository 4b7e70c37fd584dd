package admin

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A stream of lines over HTTP/1 ends its connection, even if the stream is refused. The rest of the body
// must not be parsed as a request, and the expired deadline must not affect a later request.
func TestLinesEndTheirConnection(t *testing.T) {
	const line = `{"cluster":"x","put":{"address":"10.0.0.1","port":80}}` + "\n"
	const inner = "PUT /api/v1/endpoints/victim/evil HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 32\r\n\r\n" + `{"address":"6.6.6.6","port":666}`
	sized := func(query, body string, length int) string {
		return fmt.Sprintf("POST /api/v1/endpoints%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s", query, length, body)
	}
	long := strings.Repeat("a", maxLine)
	for name, c := range map[string]struct {
		answer string
		parts  []string // with a pause longer than the lease between them
	}{
		"a line is too long":  {"200 OK", []string{sized("", long+inner, len(long+inner))}},
		"the lease is over":   {"200 OK", []string{sized("?ttl=1s", line, 1000), inner}},
		"refused":             {"400 Bad Request", []string{sized("?ttl=bad", inner, len(inner))}},
		"refused, no length":  {"400 Bad Request", []string{"POST /api/v1/endpoints?foo=1 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n" + inner}},
		"no chunk":            {"200 OK", []string{"POST /api/v1/endpoints HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + inner}},
		"it ended":            {"200 OK", []string{sized("", line, len(line)) + inner}},
		"it ended with chunk": {"200 OK", []string{"POST /api/v1/endpoints HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner}},
		"HTTP/1.0":            {"200 OK", []string{strings.Replace(sized("", long+inner, len(long+inner)), "HTTP/1.1\r\n", "HTTP/1.0\r\nConnection: keep-alive\r\n", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := registering(t)
				conn, err := servedInMemory(t, s, ofUnix).dial(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					for i, part := range c.parts {
						time.Sleep(time.Duration(i) * 3 * time.Second)
						_, _ = io.WriteString(conn, part)
					}
				}()
				_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
				b, err := io.ReadAll(conn)
				_ = conn.Close()
				got := string(b)
				if err != nil || !strings.Contains(got, " "+c.answer+"\r\n") || !strings.Contains(got, "Connection: close\r\n") || strings.Count(got, "HTTP/1.") != 1 {
					t.Errorf("%v\n%s", err, got)
				}
				time.Sleep(time.Minute) // the input ends, too
				if all := registrations(s); strings.Contains(all, "victim") {
					t.Error("the rest of the body was parsed as a request:", all)
				}
			})
		})
	}
}

// Over HTTP/2, the end of a stream does not affect other streams of the connection.
func TestLinesOverHTTP2HarmNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := servedInMemory(t, registering(t), ofUnix)
		p := &http.Protocols{}
		p.SetUnencryptedHTTP2(true)
		dials := 0
		tr := &http.Transport{Protocols: p, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { dials++; return l.dial(ctx, "") }}
		defer tr.CloseIdleConnections()
		do := func(method, path, kind string, body io.Reader) string {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost/api/v1/endpoints"+path, body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", kind)
			resp, err := (&http.Client{Transport: tr}).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			return resp.Status + " " + string(b)
		}
		open, hold := io.Pipe()
		defer hold.Close()
		streams := []io.Reader{strings.NewReader("\n"), strings.NewReader(strings.Repeat("a", 2*maxLine)), open} // ended, ended early, and with an expired lease
		for i, body := range streams {
			if got := do(http.MethodPost, "?ttl=1s", linesOfJSON, body); !strings.HasPrefix(got, "200 OK") {
				t.Error(i, got)
			}
			for range 3 {
				if got := do(http.MethodPut, fmt.Sprint("/x/", i), "application/json", strings.NewReader(fmt.Sprintf(`{"address":"10.0.0.%d","port":80}`, i+1))); !strings.HasPrefix(got, "200 OK") {
					t.Error(i, got)
				}
			}
		}
		if dials != 1 {
			t.Error(dials, "connections")
		}
	})
}
