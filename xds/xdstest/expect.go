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

// A Response is what a server said: a DiscoveryResponse or a DeltaDiscoveryResponse.
type Response struct {
	Type       *xds.Type
	Version    string // version_info, or system_version_info
	Nonce      string
	Identifier string          // of the control plane
	Resources  []*xds.Resource // in the order of the response
	Removed    []string        // delta: removed_resources
	Errors     []string        // names in resource_errors, which do not exist

	to *Client // that got it; nil: made by a test
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

// Unmarshal reads the message of the resource with the name into m. It returns an error if the
// response does not have the resource, or if that is no such message.
func (r *Response) Unmarshal(name string, m proto.Message) error {
	res := r.Resource(name)
	if res == nil {
		return fmt.Errorf("the response has no resource %q: %s", name, r)
	}
	if m == nil || !m.ProtoReflect().IsValid() {
		return fmt.Errorf("resource %q is read into a nil message", name)
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

// Next waits for the next response of a type, and of any type if that is nil. Those of others that
// come meanwhile are kept for later. It fails the test if none comes, or the stream ends.
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

// hear notes what the server said.
func (c *Client) hear(r *Response) {
	c.story = append(c.story, "< "+r.String())
	r.to = c
	if i := c.types[r.Type.URL]; i != nil {
		i.due = r.Nonce
	}
}

// hint says what a test may have forgotten that waits for a type in vain; of any type if that is
// nil.
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

// ended fails the test because the stream has.
func (c *Client) ended() {
	c.t.Helper()
	for range c.inbox { // what came before the end does not matter any more
	}
	c.fail("the stream has ended: %v", c.err)
}

// Expect waits for the next response of a type, and fails the test unless it has the resources with
// these names, in any order, and no others, and removes none. The server waits for its
// [Client.ACK] or [Client.NACK] before it tells more of the type.
func (c *Client) Expect(t *xds.Type, names ...string) *Response {
	c.t.Helper()
	r := c.Next(t)
	c.compare(r, names, nil)
	return r
}

// ExpectRemoved waits for the next response of a type, and fails the test unless it removes these
// names, in any order, and no others, and has no resources. SotW has no such responses: there
// [Client.Expect] what is left.
func (c *Client) ExpectRemoved(t *xds.Type, names ...string) *Response {
	c.t.Helper()
	if c.variant == xds.SotW {
		c.fail("SotW does not say what is removed: expect what is left")
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
		hint = "\n(a resource of SotW has its name in field 1 of its message, and one of these could not be read)"
	}
	c.fail("got  %s\nwant %s%s", r, want, hint)
}

func same(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// Await acknowledges what comes of a type until the client holds the resources with these names and
// no others, in however many responses they come; if it does already, nothing is waited for. It is
// for tests of what is served; to test how it is told, see [Client.Expect].
func (c *Client) Await(t *xds.Type, names ...string) {
	c.t.Helper()
	deadline := time.NewTimer(c.timeout)
	defer deadline.Stop()
	for !same(c.Held(t), names) {
		c.ACK(c.next(t, deadline.C, fmt.Sprintf("that the client holds %s %s, and not %s,", t, quoted(names), quoted(c.Held(t)))))
	}
}

// ExpectNothing fails the test if a response is there, or comes within the quiet time ([WithQuiet]).
// The end of the stream is no response, and fails it, too.
func (c *Client) ExpectNothing() {
	c.t.Helper()
	if len(c.early) > 0 {
		c.fail("want nothing, and there is %s", c.early[0])
	}
	quiet := time.NewTimer(c.quiet)
	defer quiet.Stop()
	select {
	case r, ok := <-c.inbox:
		if !ok {
			c.ended()
		}
		c.hear(r)
		c.fail("want nothing, and there is %s", r)
	case <-quiet.C:
	}
}

// ExpectEnd waits until the server ends the stream, and returns its error, which has a gRPC status;
// io.EOF is an end without one. It fails the test if the stream goes on.
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
