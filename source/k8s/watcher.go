package k8s

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// Options configure a watcher. Set Mappings or All.
type Options struct {
	Mappings []Mapping
	// All follows each TCP port of each service whose slices match the selector. Names gives the names
	// of the clusters.
	All   bool
	Names string // {namespace}, {service} and {port} are replaced; DefaultNames if ""

	Namespace string // "": all
	Selector  string // for labels of slices, which include those of the service; "": all

	Region   string // of all endpoints; zones come from the endpoints
	Families Families

	// Every is the shortest time between two reports of a cluster, so that simultaneous changes are
	// one report; 20 ms if zero.
	Every time.Duration
	// Log receives failures of watches; slog.Default() if nil.
	Log *slog.Logger
	// Fault, if not nil, receives the reason while the slices cannot be watched, and "" afterwards. It must not block.
	Fault func(why string)
}

// A Watcher follows slices. [New] makes it.
type Watcher struct {
	opts     Options
	informer cache.SharedIndexInformer
	tell     func(cluster string, all []api.Endpoint)
	of       map[string][]Service // services by cluster, from the mappings
	by       map[string][]string  // clusters by NAMESPACE/SERVICE, from the mappings
	bell     chan struct{}

	told  map[string][]api.Endpoint // the last reports; only for Run's goroutine
	named map[string][]string       // clusters of a service by Options.All; the same

	mu      sync.Mutex      // guards changed; never held during I/O
	changed map[string]bool // services
}

const byService = "service"

// New returns a watcher. It calls tell with all endpoints of a cluster, in order: once all slices have
// been read, and at each change. It also calls it for a cluster of a mapping without endpoints.
func New(client kubernetes.Interface, tell func(cluster string, all []api.Endpoint), o Options) (*Watcher, error) {
	o.Names, o.Every, o.Log = cmp.Or(o.Names, DefaultNames), cmp.Or(o.Every, 20*time.Millisecond), cmp.Or(o.Log, slog.Default())
	if o.Fault == nil {
		o.Fault = func(string) {}
	}
	if len(o.Mappings) == 0 && !o.All {
		return nil, errors.New("nothing to follow: a mapping or all services are needed")
	}
	if o.Families != Both && o.Families != IPv4 && o.Families != IPv6 {
		return nil, fmt.Errorf("family %q: must be %s or %s", o.Families, IPv4, IPv6)
	}
	if o.All && (!strings.Contains(o.Names, "{service}") || o.Namespace == "" && !strings.Contains(o.Names, "{namespace}")) {
		return nil, fmt.Errorf("names of clusters %q: two services would have the same name: use {namespace} and {service}", o.Names)
	}
	selector, err := labels.Parse(o.Selector)
	if err != nil {
		return nil, err
	}
	w := &Watcher{opts: o, tell: tell, of: map[string][]Service{}, by: map[string][]string{}, bell: make(chan struct{}, 1), told: map[string][]api.Endpoint{}, named: map[string][]string{}, changed: map[string]bool{}}
	for _, m := range o.Mappings {
		if o.Namespace != "" && m.Namespace != o.Namespace {
			return nil, fmt.Errorf("%s=%s/%s: only namespace %s is watched", m.Cluster, m.Namespace, m.Name, o.Namespace)
		}
		w.of[m.Cluster] = append(w.of[m.Cluster], m.Service)
		w.by[m.Namespace+"/"+m.Name] = append(w.by[m.Namespace+"/"+m.Name], m.Cluster)
	}
	ask := &asker{api: client.DiscoveryV1().EndpointSlices(o.Namespace), namespace: o.Namespace, selector: selector, log: o.Log, fault: o.Fault}
	w.informer, err = ask.informer(client)
	if err == nil {
		_, err = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    w.hear,
			UpdateFunc: func(before, now any) { w.hear(before); w.hear(now) },
			DeleteFunc: w.hear,
		})
	}
	return w, err
}

// serviceOf returns NAMESPACE/SERVICE of a slice.
func serviceOf(s *discovery.EndpointSlice) string {
	name := s.Labels[discovery.LabelServiceName]
	if name == "" {
		return ""
	}
	return s.Namespace + "/" + name
}

// hear records that a slice has changed.
func (w *Watcher) hear(x any) {
	if gone, is := x.(cache.DeletedFinalStateUnknown); is { // deleted while no watch was open
		x = gone.Obj
	}
	s, is := x.(*discovery.EndpointSlice)
	if !is {
		return
	}
	w.mu.Lock()
	w.changed[serviceOf(s)] = true
	w.mu.Unlock()
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

// Run follows slices until ctx is done. It calls ready once all existing slices have been read and
// reported.
func (w *Watcher) Run(ctx context.Context, ready func()) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { w.informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), w.informer.HasSynced) {
		return
	}
	w.mu.Lock()
	for _, key := range w.informer.GetIndexer().ListIndexFuncValues(byService) {
		w.changed[key] = true
	}
	for key := range w.by {
		w.changed[key] = true
	}
	w.mu.Unlock()
	for first := true; ; first = false {
		w.take()
		if first {
			ready()
		}
		select {
		case <-w.bell:
		case <-ctx.Done():
			return
		}
		t := time.NewTimer(w.opts.Every)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// take reports the clusters of services that have changed.
func (w *Watcher) take() {
	w.mu.Lock()
	changed := w.changed
	w.changed = map[string]bool{}
	w.mu.Unlock()
	clusters := map[string]bool{}
	others := map[string][]api.Endpoint{} // by Options.All
	for key := range changed {
		for _, c := range w.by[key] {
			clusters[c] = true
		}
		if w.opts.All && key != "" {
			w.all(key, others)
		}
	}
	for c, all := range others {
		if w.of[c] == nil { // a mapping of the same cluster has priority
			w.say(c, all)
		}
	}
	for c := range clusters {
		w.say(c, w.mapped(c))
	}
}

// all adds the clusters of a service, one for each port, and the clusters that the service no longer
// has.
func (w *Watcher) all(key string, to map[string][]api.Endpoint) {
	slicesOf := w.slices(key)
	var has []string
	for _, port := range portNames(slicesOf) {
		one := Service{slicesOf[0].Namespace, slicesOf[0].Labels[discovery.LabelServiceName], port}
		c := one.cluster(w.opts.Names)
		to[c] = append(to[c], endpointsOf(slicesOf, port, w.opts.Region, w.opts.Families)...)
		has = append(has, c)
	}
	for _, c := range w.named[key] {
		if !slices.Contains(has, c) {
			to[c] = append(to[c], []api.Endpoint{}...)
		}
	}
	w.named[key] = has
}

// mapped returns the endpoints of a cluster of the mappings.
func (w *Watcher) mapped(cluster string) []api.Endpoint {
	by := map[string]api.Endpoint{}
	for _, s := range w.of[cluster] {
		for _, e := range endpointsOf(w.slices(s.Namespace+"/"+s.Name), s.Port, w.opts.Region, w.opts.Families) {
			key := fmt.Sprint(e.Address, " ", e.Port)
			if old, twice := by[key]; !twice || old.Health != healthy {
				by[key] = e
			}
		}
	}
	all := make([]api.Endpoint, 0, len(by))
	for _, key := range slices.Sorted(maps.Keys(by)) {
		all = append(all, by[key])
	}
	return all
}

// slices returns the slices of a service.
func (w *Watcher) slices(key string) (all []*discovery.EndpointSlice) {
	found, _ := w.informer.GetIndexer().ByIndex(byService, key) // the index exists, so there is no error
	for _, x := range found {
		if s, is := x.(*discovery.EndpointSlice); is {
			all = append(all, s)
		}
	}
	return all
}

// say reports a cluster if its endpoints changed.
func (w *Watcher) say(cluster string, all []api.Endpoint) {
	if old, told := w.told[cluster]; told && slices.EqualFunc(old, all, func(a, b api.Endpoint) bool { return reflect.DeepEqual(a, b) }) {
		return
	}
	w.told[cluster] = all
	w.tell(cluster, all)
}
