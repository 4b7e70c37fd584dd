package k8s

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/source/k8s/internal/apitest"
)

// A wrongAnswer comes from an API server, or from a proxy in front of it. The log has the text says.
type wrongAnswer struct{ kind, body, says string }

func wrongLists() map[string]wrongAnswer {
	const list = `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{`
	item := func(namespace, labels string) string {
		return list + `"resourceVersion":"900"},"items":[{"metadata":{"name":"s","namespace":"` + namespace + `","resourceVersion":"9","labels":{` + labels + `}}}]}`
	}
	return map[string]wrongAnswer{
		"an empty body":            {"application/json", "", "0-length response"},
		"a page of a proxy":        {"text/html", "<html>Please log in</html>", "text/html"},
		"HTML as JSON":             {"application/json", "<html>Please log in</html>", "invalid character"},
		"JSON of another program":  {"application/json", `{"status":"ok"}`, "has no resourceVersion"},
		"a list of pods":           {"application/json", `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"900"},"items":[]}`, "has no resourceVersion"},
		"a Status of success":      {"application/json", `{"kind":"Status","apiVersion":"v1","status":"Success"}`, "has no resourceVersion"},
		"no resourceVersion":       {"application/json", list + `},"items":[]}`, "has no resourceVersion"},
		"cut off":                  {"application/json", list + `"resourceVersion":"900"},"items":[{"meta`, "unexpected end"},
		"protobuf that is none":    {"application/vnd.kubernetes.protobuf", "k8s\x00\xff\xff", ""},
		"an unknown kind":          {"application/json", `{"kind":"Odd","apiVersion":"odd.example/v1","metadata":{"resourceVersion":"900"}}`, "Odd"},
		"another namespace":        {"application/json", item("other", `"kubernetes.io/service-name":"b","mesh":"yes"`), "only namespace ns"},
		"labels that do not match": {"application/json", item("ns", `"kubernetes.io/service-name":"b"`), "do not match"},
		"items without a name":     {"application/json", list + `"resourceVersion":"900"},"items":[{},{}]}`, "has no name"},
		"an incomplete list":       {"application/json", list + `"resourceVersion":"900","remainingItemCount":7},"items":[]}`, "7 endpoint slices are missing"},
		"the same page again":      {"application/json", list + `"resourceVersion":"900","continue":"x"},"items":[]}`, "the same page"},
		"an older list":            {"application/json", list + `"resourceVersion":"3"},"items":[]}`, "went back"},
		"an empty list":            {"application/json", list + `"resourceVersion":"900"},"items":[]}`, "none of the 1 known"},
		"a list without items":     {"application/json", list + `"resourceVersion":"900"}}`, "none of the 1 known"},
	}
}

var selected = Options{Mappings: mapped.Mappings[:1], Namespace: "ns", Selector: "mesh=yes"}

// startSelected starts a server with a slice, and a watcher that has read it.
func startSelected(t *testing.T) (*apitest.Piped, *heard) {
	s := apitest.StartPiped(t)
	one := slice("s", "http:80", "10.0.0.1")
	one.Labels["mesh"] = "yes"
	s.Put(one)
	h := listen(t, s.Client, selected)
	h.gets("backend", "10.0.0.1:80")
	return s, h
}

func TestWrongAnswers(t *testing.T) {
	for name, c := range wrongLists() {
		for _, old := range []bool{false, true} {
			t.Run(fmt.Sprintf("SAFE-17 %s, old API server %v", name, old), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, h := startSelected(t)
					_, before := h.get("backend")
					s.Instead(func(w http.ResponseWriter, r *http.Request) bool {
						if old && r.URL.Query().Get("watch") != "" {
							http.Error(w, "", http.StatusNotFound)
							return true
						}
						w.Header().Set("Content-Type", c.kind)
						_, _ = w.Write([]byte(c.body))
						return true
					})
					time.Sleep(45 * time.Second)
					if got, times := h.get("backend"); times != before {
						t.Errorf("the watcher reported %q", got)
					}
					if all := h.said(); !strings.Contains(all, "keeping the last endpoints") || !strings.Contains(all, c.says) || strings.Contains(all, "watched again") {
						t.Errorf("the log has no %q:\n%s", c.says, all)
					}
					s.Instead(nil)
					two := slice("s", "http:80", "10.0.0.2")
					two.Labels["mesh"] = "yes"
					s.Put(two)
					h.gets("backend", "10.0.0.2:80")
					if all := h.said(); strings.Count(all, "watched again") != 1 {
						t.Error(all)
					}
				})
			})
		}
	}
}

func TestWrongEvents(t *testing.T) {
	event := func(typ, namespace, version string) string {
		return `{"type":"` + typ + `","object":{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"s","namespace":"` + namespace + `","resourceVersion":"` + version + `","labels":{"kubernetes.io/service-name":"b","mesh":"yes"}}}}` + "\n"
	}
	for name, c := range map[string]struct{ line, says string }{
		"deleted in another namespace":       {event("DELETED", "other", "900"), "only namespace ns"},
		"empty without a resourceVersion":    {event("MODIFIED", "ns", ""), "MODIFIED without a resourceVersion"},
		"older than the last event":          {event("BOOKMARK", "ns", "800") + event("DELETED", "ns", "3"), "went back from 800 to 3"},
		"a bookmark without resourceVersion": {`{"type":"BOOKMARK","object":{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{}}}` + "\n", "BOOKMARK without a resourceVersion"},
		"another kind":                       {`{"type":"DELETED","object":{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"s","namespace":"ns","resourceVersion":"900"}}}` + "\n", "instead of an endpoint slice"},
		"500":                                {`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"etcd is away"}}` + "\n", "etcd is away"},
		"HTML":                               {"<html>\n", "unable to decode"},
		"another type":                       {`{"type":"GONE","object":{}}` + "\n", ""},
	} {
		t.Run("SAFE-17 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, h := startSelected(t)
				s.Send(c.line)
				time.Sleep(45 * time.Second)
				if got, _ := h.get("backend"); got != "10.0.0.1:80" {
					t.Errorf("the watcher reported %q", got)
				}
				if all := h.said(); !strings.Contains(all, c.says) || !strings.Contains(all, "keeping the last endpoints") {
					t.Errorf("the log has no %q:\n%s", c.says, all)
				}
			})
		})
	}
}

// A restored API server sends no events to a watch that began at a later version.
func TestRestoredAPIServer(t *testing.T) {
	t.Run("SAFE-17 an API server that was restored from a backup", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, h := startSelected(t)
			backup := slice("t", "http:80", "10.0.0.9")
			backup.Labels["mesh"] = "yes"
			s.Restore(2, backup)
			time.Sleep(silentFor + doubtFor/2)
			if got, _ := h.get("backend"); got != "10.0.0.1:80" {
				t.Errorf("the watcher reported %q", got)
			}
			if all := h.said(); !strings.Contains(all, "no event or bookmark for 3m0s") || !strings.Contains(all, "went back from 11 to 2") {
				t.Error(all)
			}
			h.gets("backend", "10.0.0.9:80")
			if all := h.said(); strings.Count(all, "endpoints that it lacks are removed") != 1 || !strings.Contains(all, "went back from 11 to 2") {
				t.Error(all)
			}
		})
	})
	t.Run("SAFE-17 another API server at the same address", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, h := startSelected(t)
			other := slice("s", "http:80", "10.0.0.9")
			other.Labels["mesh"], other.UID = "yes", "other"
			s.Restore(5000, other)
			s.Drop()
			s.Compact()
			time.Sleep(doubtFor / 2)
			if got, _ := h.get("backend"); got != "10.0.0.1:80" {
				t.Errorf("the watcher reported %q", got)
			}
			first := slice("s", "http:80", "10.0.0.2")
			first.Labels["mesh"] = "yes"
			s.Restore(6000, first)
			h.gets("backend", "10.0.0.2:80")
		})
	})
}

// A silent watch is replaced, and a change that it lost is found.
func TestSilentWatch(t *testing.T) {
	t.Run("SAFE-17", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, h := startSelected(t)
			s.Send("\n") // white space is not an event
			time.Sleep(silentFor + 45*time.Second)
			if all := h.said(); !strings.Contains(all, "no event or bookmark") || !strings.Contains(all, "watched again") {
				t.Error(all)
			}
			for range 4 {
				s.Bookmark()
				time.Sleep(silentFor / 2)
			}
			if all := h.said(); all != "" {
				t.Error(all)
			}
		})
	})
}
