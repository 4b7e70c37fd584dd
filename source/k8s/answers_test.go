package k8s

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/chancery-xds/chancery/source/k8s/internal/apitest"
)

// A wrongAnswer comes from an API server, or from a proxy in front of it. The log has the text says.
type wrongAnswer struct {
	kind, body, says string
	code             int // 0: the connection is closed without an answer
}

// answer writes the answer.
func (a wrongAnswer) answer(w http.ResponseWriter) {
	if a.code == 0 {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", a.kind)
	w.WriteHeader(a.code)
	_, _ = w.Write([]byte(a.body))
}

// refusal is the answer of an API server with a code.
func refusal(code int, reason meta.StatusReason) wrongAnswer {
	return wrongAnswer{"application/json", fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%[2]q}`, code, reason), string(reason), code}
}

func wrongLists() map[string]wrongAnswer {
	const list = `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{`
	item := func(namespace, labels string) string {
		return list + `"resourceVersion":"900"},"items":[{"metadata":{"name":"s","namespace":"` + namespace + `","resourceVersion":"9","labels":{` + labels + `}}}]}`
	}
	return map[string]wrongAnswer{
		"an empty body":            {"application/json", "", "0-length response", 200},
		"a page of a proxy":        {"text/html", "<html>Please log in</html>", "text/html", 200},
		"HTML as JSON":             {"application/json", "<html>Please log in</html>", "invalid character", 200},
		"JSON of another program":  {"application/json", `{"status":"ok"}`, "has no resourceVersion", 200},
		"a list of pods":           {"application/json", `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"900"},"items":[]}`, "has no resourceVersion", 200},
		"a Status of success":      {"application/json", `{"kind":"Status","apiVersion":"v1","status":"Success"}`, "has no resourceVersion", 200},
		"no resourceVersion":       {"application/json", list + `},"items":[]}`, "has no resourceVersion", 200},
		"cut off":                  {"application/json", list + `"resourceVersion":"900"},"items":[{"meta`, "unexpected end", 200},
		"protobuf that is none":    {"application/vnd.kubernetes.protobuf", "k8s\x00\xff\xff", "", 200},
		"an unknown kind":          {"application/json", `{"kind":"Odd","apiVersion":"odd.example/v1","metadata":{"resourceVersion":"900"}}`, "Odd", 200},
		"another namespace":        {"application/json", item("other", `"kubernetes.io/service-name":"b","mesh":"yes"`), "only namespace ns", 200},
		"labels that do not match": {"application/json", item("ns", `"kubernetes.io/service-name":"b"`), "do not match", 200},
		"items without a name":     {"application/json", list + `"resourceVersion":"900"},"items":[{},{}]}`, "has no name", 200},
		"an incomplete list":       {"application/json", list + `"resourceVersion":"900","remainingItemCount":7},"items":[]}`, "7 endpoint slices are missing", 200},
		"the same page again":      {"application/json", list + `"resourceVersion":"900","continue":"x"},"items":[]}`, "the same page", 200},
		"an older list":            {"application/json", list + `"resourceVersion":"3"},"items":[]}`, "went back", 200},
		"an empty list":            {"application/json", list + `"resourceVersion":"900"},"items":[]}`, "none of the 1 known", 200},
		"a list without items":     {"application/json", list + `"resourceVersion":"900"}}`, "none of the 1 known", 200},
		"an event 410":             {"application/json", `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}}` + "\n", "has no resourceVersion", 200},
		"no answer":                {"", "", "EOF", 0},
		"a refusal, 401":           refusal(http.StatusUnauthorized, meta.StatusReasonUnauthorized),
		"a refusal, 410":           refusal(http.StatusGone, meta.StatusReasonExpired),
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
						c.answer(w)
						return true
					})
					time.Sleep(45 * time.Second)
					if got, times := h.get("backend"); times != before {
						t.Errorf("the watcher reported %q", got)
					}
					if all := h.said(); !strings.Contains(all, "keeping the last endpoints") || !strings.Contains(all, c.says) || strings.Contains(all, "watched again") {
						t.Errorf("the log has no %q:\n%s", c.says, all)
					}
					if got := h.faulty(); got == "" || !strings.Contains(got, c.says) {
						t.Errorf("the fault is %q, want %q", got, c.says)
					}
					s.Instead(nil)
					two := slice("s", "http:80", "10.0.0.2")
					two.Labels["mesh"] = "yes"
					s.Put(two)
					h.gets("backend", "10.0.0.2:80")
					if all := h.said(); strings.Count(all, "watched again") != 1 || h.faulty() != "" {
						t.Error(h.faulty(), all)
					}
				})
			})
		}
	}
}

// A token that was rotated is read again from its file. Until then the endpoints stay, and the log has the reason.
func TestRotatedToken(t *testing.T) {
	for _, no := range []wrongAnswer{refusal(http.StatusUnauthorized, meta.StatusReasonUnauthorized), refusal(http.StatusForbidden, meta.StatusReasonForbidden)} {
		for _, old := range []bool{false, true} {
			t.Run(fmt.Sprintf("SAFE-17 %d, old API server %v", no.code, old), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := apitest.StartPiped(t)
					s.Old = old
					file := filepath.Join(t.TempDir(), "token")
					rotate := func(token string) {
						t.Helper()
						if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
							t.Fatal(err)
						}
					}
					accept := func(token string) {
						s.Instead(func(w http.ResponseWriter, r *http.Request) bool {
							if r.Header.Get("Authorization") == "Bearer "+token {
								return false
							}
							no.answer(w)
							return true
						})
					}
					rotate("first")
					accept("first")
					s.Put(slice("s", "http:80", "10.0.0.1"))
					h := listen(t, s.WithToken(t, file), mapped)
					h.gets("backend", "10.0.0.1:80")
					if all := h.said(); all != "" {
						t.Error(all)
					}
					_, before := h.get("backend")
					accept("second")
					synctest.Wait() // the open watch has ended
					s.Delete("ns", "s")
					s.Put(slice("t", "http:80", "10.0.0.2"))
					time.Sleep(10 * time.Minute)
					if got, times := h.get("backend"); times != before {
						t.Errorf("the watcher reported %q", got)
					}
					if all := h.said(); !strings.Contains(all, "keeping the last endpoints") || !strings.Contains(all, no.says) || strings.Contains(all, "watched again") {
						t.Error(all)
					}
					if got := h.faulty(); !strings.Contains(got, no.says) {
						t.Errorf("the fault is %q", got)
					}
					rotate("second")
					h.gets("backend", "10.0.0.2:80")
					if all := h.said(); strings.Count(all, "watched again") != 1 || h.faulty() != "" {
						t.Error(h.faulty(), all)
					}
				})
			})
		}
	}
}

// If the version of a list expires between two pages, all slices are listed again. The pages of the first list do not
// count: nothing is removed meanwhile, and a second list without known slices is not believed.
func TestListExpiresBetweenPages(t *testing.T) {
	const list = `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"900"`
	for name, second := range map[string]wrongAnswer{
		"the second list is complete":          {code: http.StatusOK},
		"the second list fails":                refusal(http.StatusServiceUnavailable, meta.StatusReasonServiceUnavailable),
		"the second list has no known slice":   {"application/json", list + `},"items":[]}`, "none of the 2 known slices", http.StatusOK},
		"the version of the second is expired": refusal(http.StatusGone, meta.StatusReasonExpired),
	} {
		t.Run("SAFE-17 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apitest.StartPiped(t)
				s.Old = true
				s.Put(slice("s", "http:80", "10.0.0.1"))
				s.Put(slice("t", "http:80", "10.0.0.2"))
				h := listen(t, s.Client, mapped)
				h.gets("backend", "10.0.0.1:80, 10.0.0.2:80")
				h.said()
				_, before := h.get("backend")
				var asked []string // the continue tokens of the lists; the server is locked while it is used
				s.Instead(func(w http.ResponseWriter, r *http.Request) bool {
					q := r.URL.Query()
					if q.Get("watch") != "" {
						return false
					}
					asked = append(asked, q.Get("continue"))
					switch {
					case q.Get("continue") != "":
						refusal(http.StatusGone, meta.StatusReasonExpired).answer(w)
					case len(asked) == 1:
						_, _ = w.Write([]byte(list + `,"continue":"x"},"items":[{"metadata":{"name":"s","namespace":"ns","resourceVersion":"9","labels":{"kubernetes.io/service-name":"b"}}}]}`))
					case second.kind == "":
						return false
					default:
						second.answer(w)
					}
					return true
				})
				s.Delete("ns", "t")
				s.Compact()
				time.Sleep(45 * time.Second)
				if len(asked) < 3 || asked[0] != "" || asked[1] != "x" || asked[2] != "" {
					t.Errorf("continue tokens of the lists: %q", asked)
				}
				all := h.said()
				if second.kind == "" {
					if got, times := h.get("backend"); got != "10.0.0.1:80" || times != before+1 || all != "" {
						t.Error(got, times-before, all)
					}
					return
				}
				if got, times := h.get("backend"); times != before {
					t.Errorf("the watcher reported %q", got)
				}
				if !strings.Contains(all, "keeping the last endpoints") || !strings.Contains(all, second.says) {
					t.Errorf("the log has no %q:\n%s", second.says, all)
				}
				s.Instead(nil)
				h.gets("backend", "10.0.0.1:80")
			})
		})
	}
}

// A watch that ends again and again before its list is complete changes nothing, is not repeated without a pause, and is
// a fault.
func TestUnfinishedWatchList(t *testing.T) {
	t.Run("SAFE-17", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, h := startSelected(t)
			_, before := h.get("backend")
			asked := 0
			s.Instead(func(w http.ResponseWriter, r *http.Request) bool {
				if asked++; asked > 1000 {
					panic("requests without a pause")
				}
				if r.URL.Query().Get("sendInitialEvents") == "" {
					refusal(http.StatusGone, meta.StatusReasonExpired).answer(w)
					return true
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"type":"ADDED","object":{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"t","namespace":"ns","resourceVersion":"900","labels":{"mesh":"yes"}}}}` + "\n"))
				return true
			})
			time.Sleep(time.Minute)
			if got, times := h.get("backend"); times != before || !strings.Contains(h.said(), "the watch ended before its list of endpoint slices was complete") || h.faulty() == "" {
				t.Errorf("the watcher reported %q, the fault is %q, and the log:\n%s", got, h.faulty(), h.said())
			}
			s.Instead(nil)
			time.Sleep(time.Minute)
			if asked > 200 || h.faulty() != "" {
				t.Errorf("%d requests, the fault is %q", asked, h.faulty())
			}
		})
	})
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

// A watch that continues at a version sends later events only. The same event twice changes nothing.
func TestEventsOfContinuedWatch(t *testing.T) {
	event := func(typ, version, address string) string {
		return `{"type":"` + typ + `","object":{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"s","namespace":"ns","resourceVersion":"` + version + `","labels":{"kubernetes.io/service-name":"b","mesh":"yes"}},` +
			`"addressType":"IPv4","ports":[{"name":"http","port":80,"protocol":"TCP"}],"endpoints":[{"addresses":["` + address + `"]}]}}` + "\n"
	}
	for name, c := range map[string]struct{ lines, want, says string }{
		"an older deletion":       {event("DELETED", "3", "10.0.0.1"), "10.0.0.1:80", "went back from 11 to 3"},
		"an older change":         {event("MODIFIED", "3", "10.0.0.3"), "10.0.0.1:80", "went back from 11 to 3"},
		"a change twice":          {event("MODIFIED", "900", "10.0.0.2") + event("MODIFIED", "900", "10.0.0.2"), "10.0.0.2:80", ""},
		"a deletion twice":        {event("DELETED", "900", "10.0.0.1") + event("DELETED", "900", "10.0.0.1"), "", ""},
		"a change after deletion": {event("DELETED", "900", "10.0.0.1") + event("MODIFIED", "800", "10.0.0.1"), "", "went back from 900 to 800"},
	} {
		t.Run("SAFE-17 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, h := startSelected(t)
				s.Drop()
				time.Sleep(10 * time.Second)
				s.Send(c.lines)
				time.Sleep(500 * time.Millisecond)
				if got, _ := h.get("backend"); got != c.want {
					t.Errorf("the watcher reported %q, want %q", got, c.want)
				}
				if all := h.said(); !strings.Contains(all, c.says) || c.says == "" && strings.Contains(all, "keeping the last") {
					t.Errorf("the log has no %q:\n%s", c.says, all)
				}
			})
		})
	}
}

// A deleted slice counts although its labels no longer match.
func TestDeletedAfterChangeOfLabels(t *testing.T) {
	t.Run("SAFE-17", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, h := startSelected(t)
			s.Send(`{"type":"DELETED","object":{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"s","namespace":"ns","resourceVersion":"900","labels":{"kubernetes.io/service-name":"b"}}}}` + "\n")
			synctest.Wait()
			time.Sleep(time.Second)
			if got, _ := h.get("backend"); got != "" {
				t.Errorf("the deleted slice has %q", got)
			}
		})
	})
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
			again := slice("u", "http:80", "10.0.0.8") // the next list that contradicts is refused as long
			again.Labels["mesh"] = "yes"
			s.Restore(1, again)
			time.Sleep(silentFor + doubtFor/2)
			if got, _ := h.get("backend"); got != "10.0.0.9:80" {
				t.Errorf("the watcher reported %q", got)
			}
			h.gets("backend", "10.0.0.8:80")
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
