package k8s

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"sync"
	"time"

	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// An asker lists and watches slices at an API server. It logs when that fails, and when it works
// again.
type asker struct {
	api       typed.EndpointSliceInterface
	namespace string // "": all
	selector  labels.Selector
	log       *slog.Logger
	fault     func(why string)          // reports a failure or, with "", a recovery; it does not block
	store     cache.SharedIndexInformer // with the known slices
	pages     listing                   // the pages of a list so far; only for the informer's goroutine

	mu      sync.Mutex // guards the fields below; never held during I/O
	ended   bool       // an answer has ended in a usual way, and none has succeeded since
	away    bool       // a failure was logged
	why     string     // the error that was logged last
	when    time.Time  // when that was
	doubted time.Time  // time of the first of the refused lists; zero: the last list was accepted
}

// informer returns an informer of the slices.
func (a *asker) informer(client kubernetes.Interface) (cache.SharedIndexInformer, error) {
	i := cache.NewSharedIndexInformer(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{ListWithContextFunc: a.list, WatchFuncWithContext: a.watch}, client),
		&discovery.EndpointSlice{}, 0, cache.Indexers{byService: func(x any) ([]string, error) {
			if s, is := x.(*discovery.EndpointSlice); is && serviceOf(s) != "" {
				return []string{serviceOf(s)}, nil
			}
			return nil, nil
		}})
	a.store = i
	return i, errors.Join(
		i.SetTransform(lean),
		i.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) { a.failed(ctx, err) }),
	)
}

// lean removes unused fields of a slice, to save memory. The managed fields are a large part of it.
func lean(x any) (any, error) {
	if s, is := x.(*discovery.EndpointSlice); is {
		s.ManagedFields, s.Annotations = nil, nil
	}
	return x, nil
}

// list reads a page of a list. client-go takes a JSON object of another kind for an empty list.
func (a *asker) list(ctx context.Context, o meta.ListOptions) (runtime.Object, error) {
	o.LabelSelector = a.selector.String()
	l, err := a.api.List(ctx, o)
	if err != nil {
		return l, err // the informer reports the error
	}
	if l.ResourceVersion == "" {
		return nil, errors.New("the API server did not send a list of endpoint slices: its answer has no resourceVersion")
	}
	if o.Continue == "" {
		a.pages = listing{}
	}
	for i := range l.Items {
		if err := a.check(&l.Items[i], false); err != nil {
			return nil, err
		}
		a.pages.add(&l.Items[i], a.store.GetStore())
	}
	switch {
	case l.Continue != "" && l.Continue == o.Continue:
		return nil, errors.New("the API server sent the same page of endpoint slices again")
	case l.Continue != "":
		return l, nil
	case l.RemainingItemCount != nil && *l.RemainingItemCount > 0:
		return nil, fmt.Errorf("the list of the API server is not complete: %d endpoint slices are missing", *l.RemainingItemCount)
	}
	if err := a.accept(a.pages, l.ResourceVersion); err != nil {
		return nil, err
	}
	a.works()
	return l, nil
}

func (a *asker) watch(ctx context.Context, o meta.ListOptions) (watch.Interface, error) {
	o.LabelSelector = a.selector.String()
	w, err := a.api.Watch(ctx, o)
	if err == nil && reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()) { // client-go repeats this without reporting it
		err = fmt.Errorf("the connection ended without an answer to a watch: %w", io.EOF)
	}
	busy := utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)
	switch {
	case err == nil:
		if o.SendInitialEvents == nil {
			a.works()
		}
		return a.checked(ctx, w, o), nil
	case o.SendInitialEvents == nil && busy: // the informer tries again and does not report the error
		a.failed(ctx, err)
	case busy || expired(err) && o.SendInitialEvents != nil:
		// If the API server is busy, the informer would wait up to a minute, even if ctx is done. If the version has
		// expired, it would repeat the request without a pause. After any other error it lists again, and its retries of
		// lists end with ctx.
		return nil, errors.New(err.Error())
	}
	return w, err
}

// expired reports whether an API server no longer has a version.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// failed logs that a list or a watch has failed; the informer tries again. It logs once a minute, and
// at once if the error changes. A version expires and a connection ends without a problem, unless that happens again before
// a list or a watch has succeeded.
func (a *asker) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	usual := expired(err) || errors.Is(err, io.EOF)
	why := root(err).Error()
	a.mu.Lock()
	say := (!usual || a.ended) && (why != a.why || time.Since(a.when) > time.Minute)
	a.ended = a.ended || usual
	if say {
		a.away, a.why, a.when = true, why, time.Now()
		a.fault(err.Error())
	}
	a.mu.Unlock()
	if say {
		a.log.Warn("endpoint slices cannot be watched: keeping the last endpoints", "error", err)
	}
}

// works logs that a list or a watch works again after a failure.
func (a *asker) works() {
	a.mu.Lock()
	say := a.away
	a.ended, a.away, a.why = false, false, "" // the next failure is logged at once
	if say {
		a.fault("")
	}
	a.mu.Unlock()
	if say {
		a.log.Info("endpoint slices are watched again")
	}
}

// root returns the innermost error, which does not have the ports and times of each try.
func root(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
