package etcd

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/endpoints"
)

// An etcd that went back gets the registrations that it lacks, without those that this engine removed and whose removal
// the watch has not reported.
func TestLostRegistrations(t *testing.T) {
	conn, err := etcdkv.Open(etcdkv.Options{Endpoints: []string{"127.0.0.1:1"}, Prefix: "p"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	changes := func(ids string) (all []endpoints.Change) {
		for id := range strings.FieldsSeq(ids) {
			all = append(all, endpoints.Change{Key: endpoints.Key{Cluster: endpoints.Cluster{Group: "default", Name: "x"}, ID: id}})
		}
		return all
	}
	var e *Engine
	event := func(typ mvccpb.Event_EventType, key, value string) {
		e.sawEvents([]*clientv3.Event{{Type: typ, Kv: &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value)}}})
	}
	for _, c := range []struct {
		name string
		do   func()
		want string
	}{
		{"missing", func() {}, "a b"},
		{"removed", func() { e.removing(nil, changes("a")) }, "b"},
		{"put again", func() { e.removing(nil, changes("a")); e.removing(changes("a"), nil) }, "a b"},
		{"removal reported", func() {
			e.removing(nil, changes("a"))
			event(mvccpb.DELETE, e.key(changes("a")[0].Key), "")
		}, "a b"},
		{"everything reported", func() { e.removing(nil, changes("a")); e.reportedAll(0, 1) }, "a b"},
	} {
		t.Run("SAFE-17 "+c.name, func(t *testing.T) {
			e = New(conn, nil)
			c.do()
			var got []string
			for _, one := range e.lost(changes("c"), changes("a b c")) {
				got = append(got, one.ID)
			}
			slices.SortFunc(got, cmp.Compare)
			if all := strings.Join(got, " "); all != c.want {
				t.Errorf("%q are lost, want %q", all, c.want)
			}
		})
	}
	t.Run("SAFE-17 counter of another server", func(t *testing.T) {
		e = New(conn, nil)
		event(mvccpb.PUT, conn.Key(restoredKey), "3")
		event(mvccpb.PUT, conn.Key(restoredKey), "2")
		event(mvccpb.PUT, conn.Key("endpoints/other"), "9")
		if e.restored != 3 {
			t.Error(e.restored)
		}
	})
}
