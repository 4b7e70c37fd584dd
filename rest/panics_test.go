package rest

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// A bomb is a resolver that panics while it is armed.
type bomb struct {
	*protoregistry.Types
	armed bool
}

func (b *bomb) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if b.armed {
		panic("a bomb of the test goes off")
	}
	return b.Types.FindMessageByURL(url)
}

func TestPanics(t *testing.T) {
	refused := func(t *testing.T, r *reply) {
		t.Helper()
		if r.StatusCode != http.StatusInternalServerError || string(r.body) != "{\"code\":13,\"message\":\"internal error\"}\n" {
			t.Errorf("%d: %s", r.StatusCode, r.body)
		}
	}
	logged := func(t *testing.T, w *world) {
		t.Helper()
		if n, log := w.Stats().Panics, w.log.String(); n != 1 || strings.Count(log, "msg=panic") != 1 || !strings.Contains(log, "FindMessageByURL") {
			t.Errorf("%d panics: %s", n, log)
		}
	}
	within(t, "SAFE-8 a poll that is answered at once", func(t *testing.T) {
		b := &bomb{protoregistry.GlobalTypes, true}
		w := newWorld(t, WithResolver(b))
		w.set("a")
		refused(t, w.client().poll(""))
		refused(t, w.client().poll("")) // of the same answer
		logged(t, w)
		b.armed = false
		w.set("b")
		w.client().poll("").gets(t, 0, "a", "b")
	})
	within(t, "SAFE-8 a poll that is held", func(t *testing.T) {
		b := &bomb{protoregistry.GlobalTypes, false}
		w := newWorld(t, WithResolver(b))
		w.set("a")
		c := w.client()
		version := c.poll("").gets(t, 0, "a").VersionInfo
		time.AfterFunc(time.Second, func() { b.armed = true; w.set("b") })
		refused(t, c.poll(version))
		logged(t, w)
		synctest.Wait()
		if n := w.Stats().Polls; n != 0 {
			t.Errorf("%d polls are open", n)
		}
		b.armed = false
		w.set("c")
		c.poll(version).gets(t, 0, "a", "b", "c")
	})
	within(t, "SAFE-8 the connection of a poll that is held", func(t *testing.T) {
		w := newWorld(t)
		w.set("a")
		version := w.client().poll("").gets(t, 0, "a").VersionInfo
		p, err := w.Poll(t.Context(), xds.Cluster, xds.Request{Node: &xds.Node{ID: "n"}, Version: version}, server.Caller{})
		if err != nil {
			t.Fatal(err)
		}
		c := &touchy{}
		w.web.Handler.(*Handler).hold(&heldConn{conn: c, watchEnded: make(chan struct{})}, p, time.Hour) // returns, as when the client goes
		if n := w.Stats().Panics; n != 1 || !strings.Contains(w.log.String(), "touchy") || !c.closed {
			t.Errorf("%d panics, closed: %v, %s", n, c.closed, w.log)
		}
	})
}

// A touchy connection panics when it is read.
type touchy struct {
	net.Conn
	closed bool
}

func (*touchy) Read([]byte) (int, error) { panic("a bomb of the test goes off") }
func (c *touchy) Close() error           { c.closed = true; return nil }
