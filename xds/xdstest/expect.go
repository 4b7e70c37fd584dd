package xdstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/xds"
)

// A Response is a DiscoveryResponse or DeltaDiscoveryResponse that the client received.
type Response struct {
	Type       *xds.Type
	Version    string // version_info, or system_version_info
	Nonce      string
	Identifier string          // of the control plane
	Resources  []*xds.Resource // in the order of the response
	Removed    []string        // delta: removed_resources
	Errors     []string        // names in resource_errors: the server says that they do not exist

	to *Client // the client that received it; nil: made by a test
}

// Resource returns the resource with the name, or nil.
func (r *Response) Resource(name string) *xds.Resource {
	for _, res := range r.Resources {
		if res.Name == name {
			return res
		}
	}
	return nil
}

// Unmarshal decodes the message of the resource with the name into m. It returns an error if the response
// does not have the resource or if the resource is of another type than m.
func (r *Response) Unmarshal(name string, m proto.Message) error {
	res := r.Resource(name)
	if res == nil {
		return fmt.Errorf("the response has no resource %q: %s", name, r)
	}
	if m == nil || !m.ProtoReflect().IsValid() {
		return fmt.Errorf("resource %q cannot be decoded into a nil message", name)
	}
	if url := "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName()); url != res.Type.URL {
		return fmt.Errorf("resource %q is a %s, not a %s", name, res.Type.URL, url)
	}
	return proto.Unmarshal(res.Body, m)
}

// String returns the response in one line, without bodies.
func (r *Response) String() string {
	var names []string
	for _, res := range r.Resources {
		names = append(names, res.Name)
	}
	s := fmt.Sprintf("%s %s", r.Type, quoted(names))
	if len(r.Removed) > 0 {
		s += ", removed " + quoted(r.Removed)
	}
	if len(r.Errors) > 0 {
		s += ", errors of " + quoted(r.Errors)
	}
	return s + fmt.Sprintf(" (nonce %s, version %s)", r.Nonce, r.Version)
}

func quoted(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(all, ", ")
}

// Next waits for the next response of a type, or of any type if t is nil. Responses of other types are kept
// for later calls. It fails the test if no response arrives in time or the stream ends.
func (c *Client) Next(t *xds.Type) *Response {
	c.t.Helper()
	what := "a response"
	if t != nil {
		c.of(t)
		what += " of " + t.String()
	}
	deadline := time.NewTimer(c.timeout)
	defer deadline.Stop()
	return c.next(t, deadline.C, what)
}

func (c *Client) next(t *xds.Type, deadline <-chan time.Time, what string) *Response {
	c.t.Helper()
	wanted := func(r *Response) bool { return t == nil || r.Type.Is(t) }
	if i := slices.IndexFunc(c.early, wanted); i >= 0 {
		r := c.early[i]
		c.early = slices.Delete(c.early, i, i+1)
		return r
	}
	for {
		select {
		case r, ok := <-c.inbox:
			if !ok {
				c.ended()
			}
			c.hear(r)
			if wanted(r) {
				return r
			}
			c.early = append(c.early, r)
		case <-deadline:
			c.fail("%s did not come within %v%s", what, c.timeout, c.hint(t))
		}
	}
}

// hear records a response.
func (c *Client) hear(r *Response) {
	c.story = append(c.story, "< "+r.String())
	r.to = c
	if i := c.types[r.Type.URL]; i != nil {
		i.due = r.Nonce
	}
}

// hint explains why a test may wait for a type without success. A nil type means any type.
func (c *Client) hint(t *xds.Type) string {
	for _, url := range slices.Sorted(maps.Keys(c.types)) {
		if i := c.types[url]; i.due != "" && (t == nil || t.URL == url) {
			return fmt.Sprintf("\n(%s %s was not answered: the server waits for its ACK or NACK)", xds.TypeOf(url), i.due)
		}
	}
	if t != nil && !c.of(t).opened {
		return fmt.Sprintf("\n(the client has not subscribed to %s)", t)
	}
	return ""
}

// ended fails the test because the stream has ended.
func (c *Client) ended() {
	c.t.Helper()
	for range c.inbox { // drop responses from before the end
	}
	c.fail("the stream has ended: %v", c.err)
}

// Expect waits for the next response of a type. It fails the test if the response has other resources than
// those with these names, in any order, or removes any. The server sends the next response of the
// type only after [Client.ACK] or [Client.NACK].
func (c *Client) Expect(t *xds.Type, names ...string) *Response {
	c.t.Helper()
	r := c.Next(t)
	c.compare(r, names, nil)
	return r
}

// ExpectRemoved waits for the next response of a type. It fails the test if the response removes other names
// than these, in any order, or has any resources. SotW has no removals: use [Client.Expect] with the
// remaining names.
func (c *Client) ExpectRemoved(t *xds.Type, names ...string) *Response {
	c.t.Helper()
	if c.variant == xds.SotW {
		c.fail("SotW responses have no removals: use Expect with the remaining names")
	}
	r := c.Next(t)
	c.compare(r, nil, names)
	return r
}

func (c *Client) compare(r *Response, names, removed []string) {
	c.t.Helper()
	var got []string
	for _, res := range r.Resources {
		got = append(got, res.Name)
	}
	if same(got, names) && same(r.Removed, removed) {
		return
	}
	want := fmt.Sprintf("%s %s", r.Type, quoted(names))
	if len(removed) > 0 {
		want += ", removed " + quoted(removed)
	}
	hint := ""
	if slices.Contains(got, "") {
		hint = "\n(in SotW the name is field 1 of the message; one of these resources has no such field)"
	}
	c.fail("got  %s\nwant %s%s", r, want, hint)
}

func same(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// Await acknowledges responses of a type until the client holds exactly the resources with these names. It
// returns at once if it holds them already. Use it to test what a server serves, in any number of
// responses. To test single responses, use [Client.Expect].
func (c *Client) Await(t *xds.Type, names ...string) {
	c.t.Helper()
	deadline := time.NewTimer(c.timeout)
	defer deadline.Stop()
	for !same(c.Held(t), names) {
		c.ACK(c.next(t, deadline.C, fmt.Sprintf("the state %s %s, instead of %s,", t, quoted(names), quoted(c.Held(t)))))
	}
}

// ExpectNothing fails the test if a response is waiting, or arrives within the quiet time ([WithQuiet]). It
// also fails the test if the stream ends.
func (c *Client) ExpectNothing() {
	c.t.Helper()
	if len(c.early) > 0 {
		c.fail("want no response, got %s", c.early[0])
	}
	quiet := time.NewTimer(c.quiet)
	defer quiet.Stop()
	select {
	case r, ok := <-c.inbox:
		if !ok {
			c.ended()
		}
		c.hear(r)
		c.fail("want no response, got %s", r)
	case <-quiet.C:
	}
}

// ExpectEnd waits until the server ends the stream. It returns the error of the stream, which has a gRPC
// status, or io.EOF if the server ended it without an error. It fails the test if the stream does not end.
func (c *Client) ExpectEnd() error {
	c.t.Helper()
	deadline := time.NewTimer(c.timeout)
	defer deadline.Stop()
	for {
		select {
		case r, ok := <-c.inbox:
			if !ok {
				return c.err
			}
			c.hear(r)
		case <-deadline.C:
			c.fail("the stream has not ended within %v", c.timeout)
		}
	}
}
