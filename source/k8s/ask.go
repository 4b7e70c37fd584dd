package k8s

import (
	"context"
	"errors"
	"io"
	"log/slog"
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

// An asker asks an API server for slices, and tells the log when that fails, and when it works again.
type asker struct {
	api      typed.EndpointSliceInterface
	selector labels.Selector
	log      *slog.Logger

	mu   sync.Mutex // guards what follows; held for memory only
	away bool       // the log was told that it fails
	why  string     // what the log was told last
	when time.Time  // and when
}

// informer returns one of the slices that the asker asks for.
func (a *asker) informer(client kubernetes.Interface) (cache.SharedIndexInformer, error) {
	i := cache.NewSharedIndexInformer(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{ListWithContextFunc: a.list, WatchFuncWithContext: a.watch}, client),
		&discovery.EndpointSlice{}, 0, cache.Indexers{byService: func(x any) ([]string, error) {
			if s, is := x.(*discovery.EndpointSlice); is && serviceOf(s) != "" {
				return []string{serviceOf(s)}, nil
			}
			return nil, nil
		}})
	return i, errors.Join(
		i.SetTransform(lean),
		i.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) { a.failed(ctx, err) }),
	)
}

// lean leaves out of a slice what nobody needs here, and who changed what is much of it.
func lean(x any) (any, error) {
	if s, is := x.(*discovery.EndpointSlice); is {
		s.ManagedFields, s.Annotations = nil, nil
	}
	return x, nil
}

func (a *asker) list(ctx context.Context, o meta.ListOptions) (runtime.Object, error) {
	o.LabelSelector = a.selector.String()
	l, err := a.api.List(ctx, o)
	if err == nil {
		a.works()
	}
	return l, err // the informer tells the error
}

func (a *asker) watch(ctx context.Context, o meta.ListOptions) (watch.Interface, error) {
	o.LabelSelector = a.selector.String()
	w, err := a.api.Watch(ctx, o)
	busy := utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)
	switch {
	case err == nil:
		a.works()
	case o.SendInitialEvents == nil: // the informer tries that again and tells nobody while connections are refused
		a.failed(ctx, err)
	case busy:
		// The informer would wait for up to a minute, also for its end. After any other error it lists, and is told when to end.
		return nil, errors.New(err.Error())
	}
	return w, err
}

// failed tells the log that a list or a watch has failed, which is tried again: once a minute, or at once if it fails
// in another way than before.
func (a *asker) failed(ctx context.Context, err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, io.EOF) || ctx.Err() != nil {
		return // what it has is too old, or it has ended: it begins anew
	}
	why := root(err).Error()
	a.mu.Lock()
	say := why != a.why || time.Since(a.when) > time.Minute
	if say {
		a.away, a.why, a.when = true, why, time.Now()
	}
	a.mu.Unlock()
	if say {
		a.log.Warn("endpoint slices cannot be watched: endpoints stay as they were", "error", err)
	}
}

// works tells the log that what has failed works.
func (a *asker) works() {
	a.mu.Lock()
	say := a.away
	a.away, a.why = false, "" // what fails after this is told at once
	a.mu.Unlock()
	if say {
		a.log.Info("endpoint slices are watched again")
	}
}

// root is what an error wraps in the end, without ports and times of each try.
func root(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
